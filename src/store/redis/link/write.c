/* write: what is sent over a connection. The commands are text, the record stays in the spans: what
 * stands between its pieces is in the frame. */
#define _GNU_SOURCE
#include "store/redis/link/conn.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <valkey/valkey.h>

#include "store/redis/form.h"

enum { TEXT_ROOM = 512 };

void kvpi_conn_begin(struct kvpi_conn *conn, const struct kvpi_job *job, uint64_t now)
{
    assert(conn->n_jobs < KVPI_CONN_JOBS);
    if (conn->n_jobs == 0 || job->part)
        conn->deadline_ns = now + conn->config->timeout_ns;
    conn->jobs[(conn->first_job + conn->n_jobs++) % KVPI_CONN_JOBS] = *job;
}

/* 0: no memory. */
static int make_room(struct kvpi_conn *conn, size_t n_bytes)
{
    size_t room = conn->text_room ? conn->text_room : TEXT_ROOM;
    while (room < conn->n_text + n_bytes)
        room *= 2;
    if (room == conn->text_room)
        return 1;
    char *text = realloc(conn->text, room);
    if (!text)
        return 0;
    conn->text = text;
    conn->text_room = room;
    return 1;
}

void kvpi_conn_command(struct kvpi_conn *conn, int argc, const char *const *argv)
{
    char *text = NULL;
    const long long n = valkeyFormatCommandArgv(&text, argc, (const char **)(uintptr_t)argv, NULL);
    if (n < 0 || !make_room(conn, (size_t)n)) {
        conn->no_memory = 1; /* is found when it is sent */
    } else {
        memcpy(conn->text + conn->n_text, text, (size_t)n);
        conn->n_text += (size_t)n;
    }
    valkeyFreeCommand(text);
}

/* ----------------------------------------------------------------------------------- a record */

/* The frame, while it is written. */
struct framing {
    struct kvpi_conn *conn;
    size_t n;
};

static void add_out(struct kvpi_conn *conn, const void *bytes, size_t n_bytes)
{
    if (n_bytes > 0)
        conn->out[conn->n_out++] = (struct kvpi_span){(void *)(uintptr_t)bytes, n_bytes};
}

static void frame(struct framing *framing, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A name has less than KVPI_AGES_NAME bytes, so all of it fits. */
static void frame(struct framing *framing, const char *format, ...)
{
    char *at = framing->conn->frame + framing->n;
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(at, KVPI_CONN_FRAME - framing->n, format, arguments);
    va_end(arguments);
    add_out(framing->conn, at, (size_t)n);
    framing->n += (size_t)n;
}

static void send_small(struct kvpi_conn *conn, const struct kvpi_store_op *op, const char *key,
                       const char *ttl)
{
    struct framing framing = {conn, 0};
    const size_t n_bytes = op->spans[0].n_bytes + kvpi_form_payload(op);
    frame(&framing, "*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(key), key, n_bytes);
    for (uint32_t i = 0; i < op->n_spans; i++)
        add_out(conn, op->spans[i].bytes, op->spans[i].n_bytes);
    frame(&framing, "\r\n$2\r\nNX\r\n$2\r\nPX\r\n$%zu\r\n%s\r\n", strlen(ttl), ttl);
}

/* Both at once: a record that lacks its time to live would stay for ever. */
static void send_large(struct kvpi_conn *conn, const struct kvpi_store_op *op, const char *key,
                       const char *ttl)
{
    struct framing framing = {conn, 0};
    const size_t payload = kvpi_form_payload(op);
    size_t rest = (size_t)kvpi_form_rest(payload);
    frame(&framing, "*1\r\n$5\r\nMULTI\r\n*8\r\n$4\r\nHSET\r\n$%zu\r\n%s\r\n$1\r\n0\r\n$%zu\r\n",
          strlen(key), key, op->spans[0].n_bytes);
    add_out(conn, op->spans[0].bytes, op->spans[0].n_bytes);
    frame(&framing, "\r\n$1\r\n1\r\n$%zu\r\n", rest);
    const size_t piece = payload - rest;
    for (uint32_t i = 1; i < op->n_spans; i++) {
        const char *bytes = op->spans[i].bytes;
        size_t n_bytes = op->spans[i].n_bytes;
        const size_t n = rest < n_bytes ? rest : n_bytes;
        const int has_last = rest > 0 || i == 1;
        add_out(conn, bytes, n);
        rest -= n;
        if (rest == 0 && has_last)
            frame(&framing, "\r\n$1\r\n2\r\n$%zu\r\n", piece);
        add_out(conn, bytes + n, n_bytes - n);
    }
    frame(&framing, "\r\n*3\r\n$7\r\nPEXPIRE\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n*1\r\n$4\r\nEXEC\r\n",
          strlen(key), key, strlen(ttl), ttl);
}

void kvpi_conn_write(struct kvpi_conn *conn, struct kvpi_part *part, const char *key, int is_large,
                     uint64_t ttl_ms, uint64_t now)
{
    char ttl[24];
    snprintf(ttl, sizeof ttl, "%" PRIu64, ttl_ms);
    if (is_large) {
        const struct kvpi_job ask = {.kind = KVPI_JOB_ASK, .n_replies = 1};
        const char *const argv[] = {"EXISTS", key};
        kvpi_conn_begin(conn, &ask, now);
        kvpi_conn_command(conn, 2, argv);
    }
    const struct kvpi_job write = {.kind = KVPI_JOB_WRITE,
                                   .part = part,
                                   .n_replies = is_large ? KVPI_FORM_COMMANDS : 1,
                                   .is_large = is_large};
    kvpi_conn_begin(conn, &write, now);
    conn->is_held = is_large;
    if (is_large)
        send_large(conn, part->op, key, ttl);
    else
        send_small(conn, part->op, key, ttl);
}
