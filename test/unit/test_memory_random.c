/* Random layouts, copies and moves: fuzz/fuzz_memory.c, fed with bytes of a fixed stream, so that
 * the fuzzer's checks are made in every test run, without libFuzzer. A failing input is left in
 * memory_random.failed, for `fuzz_memory FILE`. KVP_MEMORY_INPUTS=n runs n of them. */
#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __SANITIZE_THREAD__ /* which makes every access slow */
enum { N_INPUTS = 300, MAX_BYTES = 500 };
#else
enum { N_INPUTS = 8000, MAX_BYTES = 500 };
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t bytes[MAX_BYTES];
static size_t n_bytes;

static void leave_input(int signal_number)
{
    FILE *file = fopen("memory_random.failed", "wb");
    if (file != NULL) {
        fwrite(bytes, 1, n_bytes, file);
        fclose(file);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

TEST(test_random_memory)
{
    const char *text = getenv("KVP_MEMORY_INPUTS");
    const long n_inputs = text != NULL ? strtol(text, NULL, 10) : N_INPUTS;
    uint64_t random = 4;
    signal(SIGABRT, leave_input);
    for (long i = 0; i < n_inputs; i++) {
        n_bytes = 40 + draw(&random, MAX_BYTES - 40);
        for (size_t j = 0; j < n_bytes; j++)
            bytes[j] = (uint8_t)draw(&random, 256);
        assert_int_equal(LLVMFuzzerTestOneInput(bytes, n_bytes), 0);
    }
}

TEST_MAIN(NULL, NULL)
