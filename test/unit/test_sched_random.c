/* Random calls on a scheduler: fuzz/fuzz_sched.c, fed with bytes of a fixed stream, so that the
 * fuzzer's checks are made in every test run, without libFuzzer. A failing input is left in
 * sched_random.failed, for `fuzz_sched FILE`. KVP_SCHED_INPUTS=n runs n of them. */
#include "world.h"

#include <kvpager/sched.h> /* a build without it has no fuzz_sched.c */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_INPUTS = 600, MAX_BYTES = 1500 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t bytes[MAX_BYTES];
static size_t n_bytes;

static void leave_input(int signal_number)
{
    FILE *file = fopen("sched_random.failed", "wb");
    if (file != NULL) {
        fwrite(bytes, 1, n_bytes, file);
        fclose(file);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

TEST(test_random_calls)
{
    const char *text = getenv("KVP_SCHED_INPUTS");
    const long n_inputs = text != NULL ? strtol(text, NULL, 10) : N_INPUTS;
    uint64_t random = 20;
    signal(SIGABRT, leave_input);
    for (long i = 0; i < n_inputs; i++) {
        n_bytes = 100 + draw(&random, MAX_BYTES - 100);
        for (size_t j = 0; j < n_bytes; j++)
            bytes[j] = (uint8_t)draw(&random, 256);
        assert_int_equal(LLVMFuzzerTestOneInput(bytes, n_bytes), 0);
    }
}

TEST_MAIN(NULL, NULL)
