/* Runs: each configuration is a process of its own. See sim.h.
 *
 *   kvp_sim [--seed N] [--calls N] [--seconds N] [--start-at N] [--verbose]
 *   kvp_sim --config I [--without KINDS] [--only CALLS] [--plant] ...    one, in this process
 *   kvp_sim --self-test
 *
 * A run consists of configurations of 3,000 calls. One of 60,000 calls or more also fails if a
 * situation never happened. With --start-at the counters of each life begin near N. What fails is
 * cut down (shrink.c). Exit status: 0 nothing wrong; 1 something, and the commands that do it
 * again; 2 usage. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "start.h"

enum { CALLS_OF_ALL = 60000 /* after which everything has happened */ };

typedef struct run_options {
    sim_run run;
    uint64_t seconds;
    bool is_one, is_verbose, is_test;
} run_options;

static const char *const situations[] = {
#define NAME(name) #name,
    SIM_SITUATIONS(NAME)};

static const char *const kinds[] = {SIM_KINDS(NAME)};
#undef NAME

/* ------------------------------------------------------------------------------------ processes */

sim_result *sim_share_result(void)
{
    void *memory =
        mmap(NULL, sizeof(sim_result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("kvp_sim");
        exit(2);
    }
    return memory;
}

bool sim_try(const sim_run *run, sim_result *result, bool is_quiet)
{
    int status = 0;
    result->verdict.is_bad = false;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (is_quiet && freopen("/dev/null", "w", stderr) == NULL) {
            _exit(2);
        }
        sim_run_config(run, result);
        exit(result->verdict.is_bad);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("kvp_sim");
        exit(2);
    }
    if (status != 0) {
        verdict_bad(&result->verdict, "the process ended with %s %d",
                    WIFSIGNALED(status) ? "signal" : "status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return !result->verdict.is_bad;
}

/* ------------------------------------------------------------------------------------- commands */

static uint64_t count_skipped(const sim_run *run)
{
    uint64_t n = 0;
    for (uint64_t i = 1; i <= SIM_CALLS && i <= run->calls; i++) {
        n += run->skips[i];
    }
    return n;
}

/* Calls that are made, as 3,17-19. */
static void tell_only(const sim_run *run)
{
    const char *before = " --only ";
    for (uint64_t i = 1, end; i <= run->calls; i = end) {
        for (end = i + 1; end <= run->calls && run->skips[end] == run->skips[i]; end++) {}
        if (!run->skips[i]) {
            printf(end > i + 1 ? "%s%" PRIu64 "-%" PRIu64 : "%s%" PRIu64, before, i, end - 1);
            before = ",";
        }
    }
}

void sim_tell_run(const sim_run *run)
{
    const char *before = " --without ";
    printf("kvp_sim --seed %" PRIu64 " --config %" PRIu64 " --calls %" PRIu64, run->seed,
           run->config, run->calls);
    if (run->start > 0) {
        printf(" --start-at %" PRIu64, run->start);
    }
    for (uint32_t kind = 0; kind < SIM_KINDS_N; kind++) {
        if (run->without >> kind & 1) {
            printf("%s%s", before, kinds[kind]);
            before = ",";
        }
    }
    if (count_skipped(run) > 0) {
        tell_only(run);
    }
    printf("%s\n", run->is_planted ? " --plant" : "");
}

/* Names of kinds, with commas between. */
static bool parse_without(char *text, sim_run *run)
{
    for (char *name = strtok(text, ","); name != NULL; name = strtok(NULL, ",")) {
        uint32_t kind = 0;
        while (kind < SIM_KINDS_N && strcmp(kinds[kind], name) != 0) {
            kind++;
        }
        if (kind == SIM_KINDS_N) {
            return false;
        }
        run->without |= 1u << kind;
    }
    return true;
}

static bool parse_only(char *text, sim_run *run)
{
    memset(run->skips, true, sizeof run->skips);
    for (char *part = strtok(text, ","); part != NULL; part = strtok(NULL, ",")) {
        char *end;
        const uint64_t first = strtoull(part, &end, 10);
        const uint64_t last = *end == '-' ? strtoull(end + 1, &end, 10) : first;
        if (*end != 0 || first < 1 || last < first || last > SIM_CALLS) {
            return false;
        }
        memset(run->skips + first, false, last - first + 1);
    }
    return true;
}

static bool parse(int argc, char **argv, run_options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        uint64_t *value = strcmp(name, "--seed") == 0       ? &o->run.seed
                          : strcmp(name, "--calls") == 0    ? &o->run.calls
                          : strcmp(name, "--config") == 0   ? &o->run.config
                          : strcmp(name, "--start-at") == 0 ? &o->run.start
                          : strcmp(name, "--seconds") == 0  ? &o->seconds
                                                            : NULL;
        if (strcmp(name, "--verbose") == 0) {
            o->is_verbose = true;
        } else if (strcmp(name, "--self-test") == 0) {
            o->is_test = true;
        } else if (strcmp(name, "--plant") == 0) {
            o->run.is_planted = true;
        } else if (++i == argc) {
            return false;
        } else if (value != NULL) {
            o->is_one |= value == &o->run.config;
            *value = strtoull(argv[i], NULL, 0);
        } else if (strcmp(name, "--without") == 0
                       ? !parse_without(argv[i], &o->run)
                       : strcmp(name, "--only") != 0 || !parse_only(argv[i], &o->run)) {
            return false;
        }
    }
    return true;
}

/* ----------------------------------------------------------------------------------------- runs */

static int tell(const sim_result *result, uint64_t calls, bool is_verbose)
{
    int n_missing = 0;
    for (int i = 0; i < SIM_SITUATIONS_N; i++) {
        if (is_verbose) {
            printf("%12" PRIu64 "  %s\n", result->seen[i], situations[i]);
        }
        if (result->seen[i] == 0 && calls >= CALLS_OF_ALL) {
            printf("never happened: %s\n", situations[i]);
            n_missing++;
        }
    }
    return n_missing > 0;
}

static int run_one(const sim_run *run)
{
    static sim_result result;
    sim_run_config(run, &result);
    if (result.verdict.is_bad) {
        printf("call %" PRIu64 ": %s\n", result.n_calls, result.verdict.why);
    }
    return result.verdict.is_bad;
}

static int run_all(const run_options *o)
{
    sim_result *result = sim_share_result();
    const time_t begin = time(NULL);
    uint64_t n = 0;
    for (sim_run run = o->run;
         o->seconds > 0 ? (uint64_t)(time(NULL) - begin) < o->seconds : n < o->run.calls;
         run.config++, n += SIM_CALLS) {
        run.calls = SIM_CALLS;
        if (!sim_try(&run, result, false)) {
            run.calls = result->n_calls;
            printf("%s\n", result->verdict.why);
            sim_tell_run(&run);
            sim_shrink(&run, result);
            sim_tell_run(&run);
            return 1;
        }
    }
    printf("%" PRIu64 " calls of seed %" PRIu64 "\n", n, o->run.seed);
    return tell(result, n, o->is_verbose);
}

int main(int argc, char **argv)
{
    static run_options o = {.run = {.seed = 1, .calls = CALLS_OF_ALL}};
    if (!parse(argc, argv, &o) || !start_at(o.run.start)) {
        fprintf(stderr, "usage: kvp_sim [--seed N] [--calls N] [--seconds N] [--start-at N] "
                        "[--verbose] [--config I] [--without KINDS] [--only CALLS] [--plant] "
                        "[--self-test]\n");
        return 2;
    }
    return o.is_test ? sim_test_shrink() : o.is_one ? run_one(&o.run) : run_all(&o);
}
