/* Any bytes as a command line: the first byte is the subcommand, the rest its words, one a line.
 * Options are parsed and what follows from them is counted, as far as no file is needed; `size` is
 * run, with nothing on standard input. What is refused is said, with the way to the help; what is
 * taken is within the ranges that the next stages count on. */
#define _GNU_SOURCE /* open_memstream; stderr can be assigned */

#include "tool/mrc/mrc_args.h"
#include "tool/replay/replay_args.h"
#include "tool/replay/setup.h"
#include "tool/tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { MAX_WORDS = 24 };

/* As in main.c, which has a main. */
int kvpi_tool_fail(const char *command, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "kvpager %s: ", command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return TOOL_FAILED;
}

/* A file that is named is read; none of them may wait for a terminal. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    require(freopen("/dev/null", "r", stdin) != NULL);
    return 0;
}

/* Any step takes a time that can be added up, and more work takes no less. */
static void check_times(const kvpi_step_model *model, uint64_t block_tokens)
{
    const kvp_step_seq seqs[] = {{.n_tokens = 1 << 24},
                                 {.begin = 1 << 29, .n_tokens = 1, .n_sampled = 1}};
    const kvpi_step_copies none = {0}, copies = {1 << 30, 1 << 30, 1 << 20};
    kvp_step step = {.seqs = seqs, .n_seqs = 1, .n_tokens = 1 << 24};
    const kvpi_step_time one = kvpi_step_time_of(model, &step, &none);
    step.n_seqs = 2;
    step.n_tokens++;
    step.n_decoding = step.n_sampled = 1;
    const kvpi_step_time two = kvpi_step_time_of(model, &step, &copies);
    require(one.ns <= two.ns && two.ns <= KVPI_STEP_MAX_NS);
    const kvpi_step_prices prices = kvpi_step_prices_of(model, block_tokens);
    require(prices.swap_block_ps <= KVPI_STEP_MAX_PS);
    require(prices.recompute_token_ps <= KVPI_STEP_MAX_PS);
    require(prices.swap_state_ps <= KVPI_STEP_MAX_PS);
}

static int run_replay(int argc, char **argv)
{
    kvpi_args args;
    kvpi_replay_args options;
    kvpi_replay_setup setup;
    int status = kvpi_replay_args_parse(argc, argv, &args, &options);
    if (status != KVPI_ARGS_GO)
        return status;
    const kvpi_replay_options *replay = &options.load.replay;
    require(replay->block_tokens % replay->unit_tokens == 0);
    require(options.sequential || options.load.max_running <= options.load.step_tokens);
    status = kvpi_replay_setup_make(&args, &options, &setup);
    if (status != TOOL_OK)
        return status;
    require(replay->blocks >= 1 && replay->blocks <= KVPI_REPLAY_MAX_BLOCKS);
    require(options.load.replay.host_blocks <= KVPI_REPLAY_MAX_BLOCKS);
    require(setup.token_bytes <= INT64_MAX / replay->blocks / replay->block_tokens);
    if (!options.sequential)
        check_times(&setup.step, replay->block_tokens);
    return TOOL_OK;
}

static int run_mrc(int argc, char **argv)
{
    kvpi_args args;
    kvpi_mrc_args options;
    const int status = kvpi_mrc_args_parse(argc, argv, &args, &options);
    if (status != KVPI_ARGS_GO)
        return status;
    require(options.options.trace.path != NULL && options.sizes.n <= KVPI_MRC_MAX_POINTS);
    require(options.options.sample_millionths >= 1 && options.options.sample_millionths <= 1000000);
    return TOOL_OK;
}

static const struct {
    char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"replay", run_replay}, {"mrc", run_mrc}, {"size", cmd_size}};

/* Cuts the text into words, in place. */
static int split(char *text, char **words)
{
    int n = 1; /* the command's name stands before them */
    for (char *next; n < MAX_WORDS && (next = strsep(&text, "\n")) != NULL;)
        words[n++] = next;
    words[n] = NULL;
    return n;
}

/* Runs the command; gives what it printed to stdout and stderr, for the caller to free. */
static int run_caught(size_t command, int argc, char **argv, char *printed[2])
{
    FILE *streams[2] = {stdout, stderr};
    size_t sizes[2];
    FILE *out = open_memstream(&printed[0], &sizes[0]),
         *err = open_memstream(&printed[1], &sizes[1]);
    require(out != NULL && err != NULL);
    stdout = out;
    stderr = err;
    const int status = commands[command].run(argc, argv);
    stdout = streams[0];
    stderr = streams[1];
    require(fclose(out) == 0 && fclose(err) == 0);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *words[MAX_WORDS + 1], *printed[2];
    if (size == 0)
        return 0;
    char *text = malloc(size);
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    const size_t command = data[0] % (sizeof commands / sizeof *commands);
    words[0] = commands[command].name;
    const int status = run_caught(command, split(text, words), words, printed);
    const size_t n = strlen(printed[1]);
    require(status == TOOL_OK || (strncmp(printed[1], "kvpager ", 8) == 0 &&
                                  printed[1][n - 1] == '\n' && printed[0][0] == '\0'));
    require(status != TOOL_OK || n == 0);
    require(status != TOOL_USAGE || strstr(printed[1], "--help'.\n") != NULL);
    free(printed[0]);
    free(printed[1]);
    free(text);
    return 0;
}
