/* bench: tokens per second. */
#ifndef TINY_LLAMA_BENCH_H
#define TINY_LLAMA_BENCH_H

/* Print a line for each implementation of attention. Returns 0, or 1 when it failed. */
int bench_run(void);

#endif
