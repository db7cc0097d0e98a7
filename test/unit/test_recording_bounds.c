/* Recordings, each right but for one field: at its bound it is read, one below or above it the
 * error names the field. */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bounds.h"
#include "tool/recording/packed.h"
#include "tool/recording/recording.h"

enum { BLOCK = 16, MOST_NUMBERS = 32, REFUSED = 1 };

/* Numbers of a frame. Those that are not themselves: */
#define END   UINT64_MAX
#define X     (UINT64_MAX - 1) /* the value that is tried */
#define TEXT  (UINT64_MAX - 2) /* as many letters */
#define RUNS  (UINT64_MAX - 3) /* as many runs of one block, the same one */
#define WAY_X (UINT64_MAX - 4) /* forward by the value; */
#define BACK  (UINT64_MAX - 5) /* back by it */

#define NONE NO_BOUND

struct row {
    struct bound bound;
    const char *expected; /* in the error; NULL: the field's name */
    uint64_t frame[MOST_NUMBERS];
};

#define HEADER_TAIL 0, 1, 0, 0 /* began at 0, a content, engine and model without a name */
#define REQUESTS    2, 1, 0, 0, 0, 0, 0
#define RIGHT                                                                                      \
    {                                                                                              \
        1, 0, 1, BLOCK, HEADER_TAIL, END                                                           \
    }

static const uint64_t right_header[] = RIGHT;

static const struct row rows[] = {
    {{"its kind", 1, 1, REFUSED, REFUSED}, NULL, {X, 0, 1, BLOCK, HEADER_TAIL, END}},
    {{"its number", 0, 0, NONE, REFUSED}, NULL, {1, X, 1, BLOCK, HEADER_TAIL, END}},
    {{"source", 1, 2, REFUSED, NONE}, NULL, {1, 0, X, BLOCK, HEADER_TAIL, END}},
    {{"source of events", 3, 4, NONE, REFUSED}, "source", {1, 0, X, BLOCK, HEADER_TAIL, 9, END}},
    {{"engine_blocks", 0, UINT64_MAX, NONE, NONE}, NULL, {1, 0, 4, BLOCK, HEADER_TAIL, X, END}},
    {{"block_tokens", 1, 1 << 20, REFUSED, REFUSED}, NULL, {1, 0, 1, X, HEADER_TAIL, END}},
    {{"began_us", 0, KVPI_FRAME_MAX_TIME, NONE, REFUSED},
     NULL,
     {1, 0, 1, BLOCK, WAY_X, 1, 0, 0, END}},
    {{"began_us, before 1970", 0, 0, NONE, REFUSED},
     "began_us",
     {1, 0, 1, BLOCK, BACK, 1, 0, 0, END}},
    {{"max_contents", 1, UINT64_MAX, REFUSED, NONE}, NULL, {1, 0, 1, BLOCK, 0, X, 0, 0, END}},
    {{"engine", 0, KVPI_RECORDING_TEXT - 1, NONE, REFUSED},
     NULL,
     {1, 0, 1, BLOCK, 0, 1, TEXT, 0, END}},
    {{"model", 0, KVPI_RECORDING_TEXT - 1, NONE, REFUSED},
     NULL,
     {1, 0, 1, BLOCK, 0, 1, 0, TEXT, END}},
    {{"kind of the next", 2, 3, REFUSED, REFUSED}, "its kind", {X, 1, 0, 0, 0, 0, 0, END}},
    {{"number of the next", 1, 1, REFUSED, REFUSED}, "its number", {2, X, 0, 0, 0, 0, 0, END}},
    {{"requests before it", 0, 0, NONE, REFUSED}, NULL, {2, 1, X, 0, 0, 0, 0, END}},
    {{"contents", 0, KVPI_FRAME_MAX_CONTENTS, NONE, REFUSED}, NULL, {2, 1, 0, X, 0, 0, 0, END}},
    {{"flags", 0, 0, NONE, NONE}, NULL, {REQUESTS, X, 0, 0, 0, 0, END}},
    {{"all flags", 127, 127, NONE, REFUSED},
     "flags",
     {REQUESTS, X, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, END}},
    {{"time", 0, KVPI_FRAME_MAX_TIME, NONE, REFUSED}, NULL, {REQUESTS, 0, WAY_X, 0, 0, 0, END}},
    {{"time, before 1970", 0, 0, NONE, REFUSED}, "time", {REQUESTS, 0, BACK, 0, 0, 0, END}},
    {{"input_tokens", 0, (1 << 30) - 1, NONE, REFUSED}, NULL, {REQUESTS, 0, 0, X, 0, 0, END}},
    {{"output_tokens", 0, (1 << 30) - 1, NONE, REFUSED}, NULL, {REQUESTS, 0, 0, 0, X, 0, END}},
    {{"cached_tokens", 0, 7, NONE, REFUSED}, NULL, {REQUESTS, 1, 0, 7, 0, X, 0, END}},
    {{"first_us", 0, KVPI_FRAME_MAX_TIME, NONE, REFUSED}, NULL, {REQUESTS, 2, 0, 0, 0, X, 0, END}},
    {{"last_us", 0, KVPI_FRAME_MAX_TIME, NONE, REFUSED}, NULL, {REQUESTS, 4, 0, 0, 0, X, 0, END}},
    {{"session", 0, INT64_MAX, NONE, REFUSED}, NULL, {REQUESTS, 8, 0, 0, 0, X, 0, END}},
    {{"scope", 0, INT64_MAX, NONE, REFUSED}, NULL, {REQUESTS, 16, 0, 0, 0, X, 0, END}},
    {{"runs", 0, 3, NONE, REFUSED}, NULL, {REQUESTS, 0, 0, 2 * BLOCK, BLOCK, RUNS, END}},
    {{"first", 0, 2, NONE, REFUSED}, NULL, {2, 1, 0, 2, 0, 0, 0, 0, 0, BLOCK, 0, 1, WAY_X, 1, END}},
    {{"first, back", 0, 1, NONE, REFUSED},
     "first",
     {REQUESTS, 0, 0, 2 * BLOCK, 0, 2, 0, 1, BACK, 1, END}},
    {{"n", 1, 3, NONE, REFUSED}, "n is", {REQUESTS, 0, 0, 3 * BLOCK, 0, 1, 0, X, END}},
    {{"no blocks", 1, 1, REFUSED, NONE}, NULL, {REQUESTS, 0, 0, 3 * BLOCK, 0, 1, 0, X, END}},
    {{"runs of what is unseen", 0, 0, NONE, REFUSED},
     "runs",
     {REQUESTS, 32, 0, 2 * BLOCK, 0, RUNS, END}},
    {{"depth", 0, KVPI_FRAME_MAX_CONTENTS, NONE, REFUSED},
     NULL,
     {REQUESTS, 64, 0, BLOCK, 0, 1, 0, 1, 1, X, 3, END}},
    {{"n behind a depth", 0, 2 * KVPI_RECORDING_MAX_BLOCKS + 1, NONE, REFUSED},
     "n is",
     {REQUESTS, 64, 0, BLOCK, 0, 1, 0, 1, 1, 0, X, END}},
    {{"again", 4, 4, NONE, REFUSED}, /* and a request of zeros behind it */
     NULL,
     {REQUESTS, 64, 0, 2 * BLOCK, 0, 1, 0, 2, X, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, END}},
    {{"n of a second run", 1, 2, NONE, REFUSED},
     "n is",
     {REQUESTS, 0, 0, 3 * BLOCK, 0, 2, 0, 1, 0, X, END}},
};

struct frame {
    uint8_t bytes[4096];
    size_t n;
};

static void put(struct frame *frame, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        frame->bytes[frame->n++] = (uint8_t)(value & 0x7f) | 0x80;
    frame->bytes[frame->n++] = (uint8_t)value;
}

static void put_number(struct frame *frame, uint64_t number, uint64_t x)
{
    switch (number) {
    case X: put(frame, x); break;
    case WAY_X: put(frame, 2 * x); break;
    case BACK: put(frame, x == 0 ? 0 : 2 * x - 1); break;
    case TEXT:
        put(frame, x);
        memset(frame->bytes + frame->n, 'a', x);
        frame->n += x;
        break;
    case RUNS:
        put(frame, x);
        for (uint64_t i = 0; i < x; i++) {
            put(frame, i == 0 ? 0 : 1); /* the same block again */
            put(frame, 1);
        }
        break;
    default: put(frame, number);
    }
}

static void write_frame(kvpi_frame_writer *frames, FILE *file, const uint64_t *numbers, uint64_t x)
{
    kvpi_recording_error error = {""};
    struct frame frame = {.n = 0};
    for (; *numbers != END; numbers++)
        put_number(&frame, *numbers, x);
    assert_int_equal(kvpi_frame_write(frames, file, frame.bytes, frame.n, &error), 0);
}

static FILE *open_file(void)
{
    char path[] = "/tmp/kvpager-XXXXXX";
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w+b");
    assert_non_null(file);
    unlink(path);
    return file;
}

static int read_row(const struct bound *bound, void *context, uint64_t value)
{
    const struct row *row = context;
    const char *expected = row->expected != NULL ? row->expected : bound->field;
    kvpi_frame_writer frames = {0};
    kvpi_recording_error error = {""};
    kvpi_recording_reader *reader = NULL;
    kvpi_recorded got;
    FILE *file = open_file();
    fputs(KVPI_RECORDING_MAGIC, file);
    if (row->frame[0] == 2 || row->frame[1] == 1)
        write_frame(&frames, file, right_header, 0);
    write_frame(&frames, file, row->frame, value);
    kvpi_frame_writer_free(&frames);
    rewind(file);
    int result = kvpi_recording_open(file, &reader, &error);
    while (result == 0 && (result = kvpi_recording_next(reader, &got, &error)) == 1)
        result = 0;
    kvpi_recording_free(reader);
    fclose(file);
    if (result == KVPI_RECORDING_WRONG && strstr(error.text, expected) == NULL) {
        print_error("%s = %llu: %s\n", bound->field, (unsigned long long)value, error.text);
        return -1;
    }
    return result == KVPI_RECORDING_WRONG ? REFUSED : 0;
}

TEST(test_fields)
{
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct row row = rows[i];
        n_wrong += bounds_wrong(&row.bound, read_row, &row);
    }
    assert_int_equal(n_wrong, 0);
}

TEST_MAIN(NULL, NULL)
