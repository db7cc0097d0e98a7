/* See subscribe.h. One thread, and libzmq's own, which keeps MAX_QUEUED batches.
 *
 *   PUB     -> SUB      topic, number (u64, big-endian), batch
 *   ROUTER <-> DEALER   "", first number -> "", [topic,] number, batch ... until number -1
 *
 * Before the first one all that is kept is asked for. A number must be the one before and 1. A
 * larger one is a gap: what is missing is asked for, and what is not got is named. One that is not
 * larger is a repetition, unless the engine's clock has gone on, or its counters fell: then the
 * engine has restarted.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, nanosleep, sigaction */
#include "tool/record/subscribe.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "tool/input/escape.h"
#include "tool/record/clock.h"
#include "tool/text.h"
#include "tool/tool.h"

enum {
    MAX_QUEUED = 20000,
    MAX_FRAMES = 4,
    SAID = 8,            /* so often each kind of trouble is printed */
    FLUSH_MS = 2000,     /* between writes of the file */
    REPLAY_MS = 2000,    /* without an answer of a replay */
    ANSWERS_MS = 30000,  /* of a replay in all */
    LAST_MS = 200,       /* without a batch, at the end */
    END_MS = 2000,       /* of the end in all */
    AT_ONCE = 1000,      /* batches, then counters and the file have their turn */
    HEARTBEAT_MS = 5000, /* of the connection */
    AGAIN_MS = 1000      /* until a connection that libzmq has given up is made again */
};
#define MAX_BYTES ((int64_t)64 << 20) /* of a batch */
#define MONITOR   "inproc://kvpager-record"
#define WATCHED                                                                                    \
    (ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED |          \
     ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |                  \
     ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

typedef enum trouble {
    AWAY,
    REPEATED,
    SKIPPED,
    RESTARTED,
    WRONG,
    UNKNOWN,
    COUNTERS,
    RESIZED,
    TROUBLES
} trouble;

typedef struct subscriber {
    const kvpi_subscribe_options *options;
    kvpi_recorder *recorder;
    kvpi_lookups *lookups;
    void *context, *sub, *dealer, *monitor;
    kvpi_batch batch;
    bool has_number, is_connected, is_failed;
    bool is_given_up; /* since broken_ms: what came was no ZeroMQ's, or too large a message */
    uint64_t number;  /* of the last batch */
    uint64_t order;   /* of batches that were taken */
    double time;      /* of the engine, of the last batch */
    uint64_t n_batches, n_refused, n_missing, said[TROUBLES];
    uint64_t engine_blocks;
    int64_t ahead_us;                        /* of the monotonic clock: since 1970 */
    int64_t asked_ms, flushed_ms, broken_ms; /* of the monotonic clock */
} subscriber;

/* Of a message: frames that were received. */
typedef struct message {
    zmq_msg_t frames[MAX_FRAMES + 1];
    int n; /* more than MAX_FRAMES: the others are dropped, each in the last place */
} message;

static volatile sig_atomic_t is_ending;

static void on_signal(int number)
{
    (void)number;
    is_ending = 1;
}

static int64_t now_us(const subscriber *of)
{
    return kvpi_monotonic_us() + of->ahead_us;
}

static int64_t now_ms(void)
{
    return kvpi_monotonic_us() / 1000;
}

static void say(subscriber *of, trouble kind, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

static void say(subscriber *of, trouble kind, const char *format, ...)
{
    char text[400];
    va_list arguments;
    if (++of->said[kind] > SAID)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "kvpager %s: %s%s\n", of->options->command, kvpi_escape(text).of,
            of->said[kind] == SAID ? "; more of this is only counted" : "");
}

static int give_up(subscriber *of, const char *why)
{
    if (!of->is_failed)
        kvpi_tool_fail(of->options->command, "%s: %s", of->options->path, why);
    of->is_failed = true;
    return -1;
}

/* What these batches told of is not in the file, which says so. */
static void lose(subscriber *of, uint64_t n)
{
    kvpi_recorder_lost(of->recorder, n < UINT32_MAX ? n : UINT32_MAX);
}

/* ------------------------------------------------------------------------------------- batches */

/* Go through a batch, whose events are not believed yet. */
static int check(subscriber *of, const message *got, int payload)
{
    kvpi_event event;
    zmq_msg_t *bytes = (zmq_msg_t *)&got->frames[payload];
    int result = kvpi_batch_begin(&of->batch, zmq_msg_data(bytes), zmq_msg_size(bytes));
    while (result == 0 && (result = kvpi_batch_next(&of->batch, &event)) == 1)
        result = 0;
    return result;
}

/* A batch whose number is in order. What a replay sends behind a reset is no traffic, but what is
 * there: `is_old` says so from then on. NULL: it is no replay. */
static int take(subscriber *of, const message *got, int payload, uint64_t number, bool *is_old)
{
    kvpi_event event;
    kvpi_recording_error error;
    zmq_msg_t *bytes = (zmq_msg_t *)&got->frames[payload];
    of->has_number = true;
    of->number = number;
    if (check(of, got, payload) != 0) {
        say(of, WRONG, "batch %" PRIu64 " is not understood, and left out: %s", number,
            of->batch.error.text);
        of->n_refused++;
        lose(of, 1);
        return 0;
    }
    of->time = of->batch.time;
    of->n_batches++;
    of->order++;
    (void)kvpi_batch_begin(&of->batch, zmq_msg_data(bytes), zmq_msg_size(bytes));
    while (kvpi_batch_next(&of->batch, &event) == 1) {
        if (event.kind == KVPI_EVENT_OTHER)
            say(of, UNKNOWN, "an event of a type that is not known is passed over");
        if (is_old != NULL && event.kind == KVPI_EVENT_CLEARED)
            *is_old = true;
        if (kvpi_lookups_event(of->lookups, &event, now_us(of), of->order,
                               is_old != NULL && *is_old, &error) != 0)
            return give_up(of, error.text);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------ messages */

static void drop(message *of)
{
    for (int i = 0; i < of->n && i < MAX_FRAMES; i++)
        (void)zmq_msg_close(&of->frames[i]);
    of->n = 0;
}

/* False: there is none now. */
static bool receive(void *socket, message *out)
{
    int more = 1;
    size_t size = sizeof more;
    for (out->n = 0; more != 0; out->n++) {
        zmq_msg_t *frame = &out->frames[out->n < MAX_FRAMES ? out->n : MAX_FRAMES];
        (void)zmq_msg_init(frame);
        if (zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) < 0) {
            (void)zmq_msg_close(frame);
            drop(out);
            return false;
        }
        (void)zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size);
        if (out->n >= MAX_FRAMES)
            (void)zmq_msg_close(frame);
    }
    return true;
}

static uint64_t number_of(const message *of, int i)
{
    const uint8_t *bytes = zmq_msg_data((zmq_msg_t *)&of->frames[i]);
    uint64_t number = 0;
    for (int k = 0; k < 8; k++)
        number = number << 8 | bytes[k];
    return number;
}

static bool is_number(const message *of, int i)
{
    return zmq_msg_size((zmq_msg_t *)&of->frames[i]) == 8;
}

static bool wait_for(void *socket, int64_t ms)
{
    zmq_pollitem_t item = {socket, 0, ZMQ_POLLIN, 0};
    return zmq_poll(&item, 1, (long)ms) > 0;
}

/* -------------------------------------------------------------------------------------- replay */

static void close_dealer(subscriber *of)
{
    if (of->dealer != NULL)
        (void)zmq_close(of->dealer);
    of->dealer = NULL;
}

/* A connection for each question: no answer to an earlier one comes by it. */
static bool connect_dealer(subscriber *of)
{
    const int queued = MAX_QUEUED, none = 0;
    const int64_t most = MAX_BYTES;
    close_dealer(of);
    of->dealer = zmq_socket(of->context, ZMQ_DEALER);
    return of->dealer != NULL &&
           zmq_setsockopt(of->dealer, ZMQ_RCVHWM, &queued, sizeof queued) == 0 &&
           zmq_setsockopt(of->dealer, ZMQ_MAXMSGSIZE, &most, sizeof most) == 0 &&
           zmq_setsockopt(of->dealer, ZMQ_LINGER, &none, sizeof none) == 0 &&
           zmq_connect(of->dealer, of->options->replay) == 0;
}

/* An answer of a replay. Returns: 1: it was the last one; 0; -1 */
static int take_answer(subscriber *of, const message *got, uint64_t first, uint64_t end,
                       bool *is_old)
{
    const int at = got->n - 2; /* with the topic, or without: number and batch are the last ones */
    if (got->n < 3 || got->n > MAX_FRAMES || !is_number(got, at)) {
        say(of, WRONG, "an answer of %d frames to a replay is not understood", got->n);
        return 0;
    }
    const uint64_t number = number_of(got, at);
    if (number == UINT64_MAX)
        return 1;
    if (number < first || number >= end || (of->has_number && number <= of->number))
        return 0;
    return take(of, got, at + 1, number, is_old);
}

/* Ask for the batches from `first` up to `end`, which is not asked for. */
static int replay(subscriber *of, uint64_t first, uint64_t end, bool is_old)
{
    uint8_t number[8];
    message got = {.n = 0};
    int result = 0;
    if (of->options->replay == NULL || !connect_dealer(of))
        return 0;
    for (int i = 0; i < 8; i++)
        number[i] = (uint8_t)(first >> (56 - 8 * i));
    if (zmq_send(of->dealer, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
        zmq_send(of->dealer, number, sizeof number, ZMQ_DONTWAIT) < 0)
        return 0;
    const int64_t end_ms = now_ms() + ANSWERS_MS;
    while (result == 0 && !is_ending && now_ms() < end_ms && wait_for(of->dealer, REPLAY_MS) &&
           receive(of->dealer, &got)) {
        result = take_answer(of, &got, first, end, &is_old);
        drop(&got);
    }
    close_dealer(of); /* what is still sent would wait there */
    return result < 0 ? -1 : 0;
}

/* ---------------------------------------------------------------------------------------- live */

/* Batches from `first` to before `number` were not heard: what can be got is taken. */
static int fill_gap(subscriber *of, uint64_t first, uint64_t number)
{
    const uint64_t taken = of->n_batches + of->n_refused;
    if (first == number)
        return 0;
    if (replay(of, first, number, false) != 0)
        return -1;
    const uint64_t n = number - first, got = of->n_batches + of->n_refused - taken;
    if (got >= n)
        return 0;
    of->n_missing += n - got;
    lose(of, n - got);
    say(of, SKIPPED,
        "batches %" PRIu64 " to %" PRIu64 " were not heard; %" PRIu64 " of them came by replay",
        first, number - 1, got);
    return 0;
}

static int take_live(subscriber *of, const message *got)
{
    const uint64_t number = got->n == 3 && is_number(got, 1) ? number_of(got, 1) : UINT64_MAX;
    if (number == UINT64_MAX) { /* it ends a replay, and is no batch's */
        say(of, WRONG, "a message of %d frames is not understood, expected topic, number, batch",
            got->n);
        return 0;
    }
    /* What is there already, so that hits of it are known. */
    if (!of->has_number && replay(of, 0, number, true) != 0)
        return -1;
    uint64_t first = of->has_number ? of->number + 1 : number;
    if (number < first) {
        const uint64_t before = of->number;
        if (check(of, got, 2) != 0 ||
            (of->batch.time <= of->time && !kvpi_lookups_has_fallen(of->lookups))) {
            say(of, REPEATED,
                "the engine repeats number %" PRIu64 " after %" PRIu64
                ", or it comes late: left out",
                number, before);
            return 0;
        }
        say(of, RESTARTED,
            "the engine has restarted: its numbers go back from %" PRIu64 " to %" PRIu64, before,
            number);
        kvpi_lookups_restarted(of->lookups);
        of->has_number = false;
        first = 0;
    }
    return fill_gap(of, first, number) != 0 ? -1 : take(of, got, 2, number, NULL);
}

static int take_all_live(subscriber *of)
{
    message got = {.n = 0};
    int result = 0;
    for (int i = 0; i < AT_ONCE && result == 0 && receive(of->sub, &got); i++) {
        result = take_live(of, &got);
        drop(&got);
    }
    return result;
}

/* ------------------------------------------------------------------------------------- counters */

static int count(subscriber *of, bool is_last)
{
    kvpi_counters got;
    kvpi_recording_error error;
    uint64_t blocks = 0;
    const kvpi_recording_about *about = &of->options->recorder.about;
    of->asked_ms = now_ms();
    if (of->options->metrics == NULL)
        return 0;
    const char *why =
        kvpi_counters_ask(of->options->metrics, (uint64_t)about->block_tokens, &got, &blocks);
    if (why != NULL) {
        say(of, COUNTERS, "the counters of the engine at %s:%u are not there: %s",
            of->options->metrics->host, of->options->metrics->port, why);
        return 0;
    }
    if (blocks != of->engine_blocks) {
        say(of, RESIZED,
            "the engine has %" PRIu64 " blocks, not %" PRIu64
            " as before: of both the file has estimates, no bounds",
            blocks, of->engine_blocks);
        of->engine_blocks = blocks;
        lose(of, 1);
    }
    if (kvpi_lookups_count(of->lookups, &got, now_us(of), is_last, &error) != 0)
        return give_up(of, error.text);
    return 0;
}

/* The engine's first counters say where the recording begins, and what its header needs. */
static bool wait_for_counters(subscriber *of, kvpi_recorder_options *to, kvpi_counters *out)
{
    const char *said = NULL;
    while (of->options->metrics != NULL && !is_ending) {
        const char *why = kvpi_counters_ask(of->options->metrics, (uint64_t)to->about.block_tokens,
                                            out, &to->about.engine_blocks);
        if (why == NULL)
            return true;
        if (why != said)
            fprintf(stderr, "kvpager %s: waiting for the counters of the engine at %s:%u: %s\n",
                    of->options->command, of->options->metrics->host, of->options->metrics->port,
                    why);
        said = why;
        const struct timespec pause = {(time_t)(of->options->period_ms / 1000),
                                       (long)(of->options->period_ms % 1000) * 1000000};
        (void)nanosleep(&pause, NULL);
    }
    return of->options->metrics == NULL;
}

/* -------------------------------------------------------------------------------------- running */

/* A connection that came or went. */
static void take_monitor(subscriber *of)
{
    message got = {.n = 0};
    while (receive(of->monitor, &got)) {
        uint16_t event = 0;
        if (zmq_msg_size(&got.frames[0]) >= sizeof event)
            memcpy(&event, zmq_msg_data(&got.frames[0]), sizeof event);
        drop(&got);
        const bool comes = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
        of->is_given_up = !comes && event != ZMQ_EVENT_CONNECT_RETRIED;
        of->broken_ms = now_ms();
        if (comes == of->is_connected)
            continue;
        of->is_connected = comes;
        say(of, AWAY, comes ? "receives events from %s" : "the engine at %s is away; waiting",
            of->options->events);
    }
}

/* libzmq tries again where a connection ends, but not where the other side broke its protocol. */
static void connect_again(subscriber *of)
{
    if (!of->is_given_up || now_ms() - of->broken_ms < AGAIN_MS)
        return;
    of->broken_ms = now_ms();
    (void)zmq_disconnect(of->sub, of->options->events);
    (void)zmq_connect(of->sub, of->options->events);
}

static int flush(subscriber *of)
{
    kvpi_recording_error error;
    of->flushed_ms = now_ms();
    return kvpi_recorder_flush(of->recorder, &error) == 0 ? 0 : give_up(of, error.text);
}

static int loop(subscriber *of)
{
    zmq_pollitem_t items[] = {{of->sub, 0, ZMQ_POLLIN, 0}, {of->monitor, 0, ZMQ_POLLIN, 0}};
    int result = 0;
    while (result == 0 && !is_ending) {
        const int64_t period = (int64_t)of->options->period_ms, now = now_ms();
        int64_t ms = of->asked_ms + period - now;
        ms = ms < FLUSH_MS ? ms : FLUSH_MS;
        (void)zmq_poll(items, 2, ms > 0 ? (long)ms : 0);
        take_monitor(of);
        result = take_all_live(of);
        connect_again(of);
        if (result == 0 && now_ms() - of->asked_ms >= period)
            result = count(of, false);
        if (result == 0 && now_ms() - of->flushed_ms >= FLUSH_MS)
            result = flush(of);
    }
    const int64_t end_ms = now_ms() + END_MS;
    while (result == 0 && now_ms() < end_ms && wait_for(of->sub, LAST_MS))
        result = take_all_live(of);
    return result;
}

/* Gives, on failure: of which option. */
static bool connect_all(subscriber *of, const char **option)
{
    const int queued = MAX_QUEUED, heartbeat = HEARTBEAT_MS;
    const int64_t most = MAX_BYTES;
    *option = "--events";
    of->context = zmq_ctx_new();
    of->sub = of->context == NULL ? NULL : zmq_socket(of->context, ZMQ_SUB);
    of->monitor = of->context == NULL ? NULL : zmq_socket(of->context, ZMQ_PAIR);
    if (of->sub == NULL || of->monitor == NULL)
        return false;
    bool fine = zmq_setsockopt(of->sub, ZMQ_RCVHWM, &queued, sizeof queued) == 0 &&
                zmq_setsockopt(of->sub, ZMQ_MAXMSGSIZE, &most, sizeof most) == 0 &&
                zmq_setsockopt(of->sub, ZMQ_HEARTBEAT_IVL, &heartbeat, sizeof heartbeat) == 0 &&
                zmq_setsockopt(of->sub, ZMQ_SUBSCRIBE, "", 0) == 0 &&
                zmq_socket_monitor(of->sub, MONITOR, WATCHED) == 0 &&
                zmq_connect(of->monitor, MONITOR) == 0;
    if (fine && of->options->replay != NULL) {
        *option = "--replay";
        fine = connect_dealer(of);
    }
    *option = fine ? "--events" : *option;
    return fine && zmq_connect(of->sub, of->options->events) == 0;
}

static void end(subscriber *of)
{
    void *const sockets[] = {of->dealer, of->sub, of->monitor};
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++)
        if (sockets[i] != NULL)
            (void)zmq_close(sockets[i]);
    if (of->context != NULL)
        (void)zmq_ctx_term(of->context);
    kvpi_batch_free(&of->batch);
    kvpi_lookups_free(of->lookups);
}

static void tell(const subscriber *of)
{
    const kvpi_recording_counts counts = kvpi_recorder_counts(of->recorder);
    fprintf(stderr, "kvpager %s: %s records, %s requests or batches lost; %s batches",
            of->options->command, kvpi_text_count(counts.requests).of,
            kvpi_text_count(counts.lost).of, kvpi_text_count(of->n_batches).of);
    fprintf(stderr, ", %s missing, %s repeated or late", kvpi_text_count(of->n_missing).of,
            kvpi_text_count(of->said[REPEATED]).of);
    fprintf(stderr, ", %s not understood, %s restarts\n", kvpi_text_count(of->said[WRONG]).of,
            kvpi_text_count(of->said[RESTARTED]).of);
}

/* The file is open. */
static int record(subscriber *of, const kvpi_recording_about *about, const kvpi_counters *first)
{
    kvpi_recording_error error;
    of->lookups = kvpi_lookups_new(of->recorder, about);
    if (of->lookups == NULL)
        return give_up(of, "out of memory");
    if (of->options->metrics != NULL &&
        kvpi_lookups_count(of->lookups, first, now_us(of), false, &error) != 0)
        return give_up(of, error.text);
    of->asked_ms = of->flushed_ms = now_ms();
    of->engine_blocks = about->engine_blocks;
    fprintf(stderr, "kvpager %s: waiting for events from %s\n", of->options->command,
            of->options->events);
    const int result = loop(of);
    if (kvpi_lookups_end(of->lookups, &error) != 0)
        return give_up(of, error.text);
    return result == 0 ? count(of, true) : result;
}

int kvpi_subscribe_run(const kvpi_subscribe_options *options)
{
    subscriber of = {.options = options,
                     .ahead_us = options->recorder.about.began_us - kvpi_monotonic_us()};
    kvpi_recorder_options to = options->recorder;
    kvpi_recording_error error;
    kvpi_counters first = {0, 0};
    const char *option = NULL;
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    if (!wait_for_counters(&of, &to, &first))
        return TOOL_OK; /* it was ended before there was anything */
    int status = TOOL_OK;
    if (!connect_all(&of, &option))
        status =
            kvpi_tool_fail(options->command, "%s: cannot connect: %s", option, zmq_strerror(errno));
    else if (kvpi_recorder_open(&to, &of.recorder, &error) != 0)
        status = kvpi_tool_fail(options->command, "%s: %s", options->path, error.text);
    if (status == TOOL_OK) {
        (void)record(&of, &to.about, &first);
        tell(&of);
    }
    end(&of);
    if (status != TOOL_OK)
        return status;
    if (kvpi_recorder_close(of.recorder, &error) != 0)
        (void)give_up(&of, error.text);
    return of.is_failed ? TOOL_FAILED : TOOL_OK;
}
