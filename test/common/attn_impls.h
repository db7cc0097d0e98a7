/* attn_impls: the implementations of fast attention that a test compares with the reference: all
 * that this processor has, or only the one that the command line names. */
#ifndef KVP_ATTENTION_IMPLS_H
#define KVP_ATTENTION_IMPLS_H

#include <stdint.h>

/* Reads `portable`, `avx2`, `avx512`, `avx512_bf16`, `avx512_fp16`, `amx` or `neon` off the command
 * line. Gives what main has to exit with: 0 to go on, 77 (skipped) if the processor does not have
 * that one, 2 if there is none of this name. */
int attn_impls_choose(int argc, char **argv);

/* Whether `impl` is to be tried. */
int attn_impls_has(uint32_t impl);

/* What a random test runs now: named when it fails, by its teardown. Case 0: none. */
extern uint64_t attn_running_case;
extern uint32_t attn_running_impl;
int attn_name_the_case(void **state);

/* Of a test whose arguments are those. */
#define ATTN_IMPLS_MAIN                                                                            \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        const int status = attn_impls_choose(argc, argv);                                          \
        return status != 0 ? status : run_all_tests(NULL, NULL);                                   \
    }

#endif
