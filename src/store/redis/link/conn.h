/* conn: one connection to a server, without blocking. Commands go out in order, replies come back
 * in the same order; `jobs` says what each reply is for.
 *
 *     CLOSED -> kvpi_conn_open -> OPENING: look-up, connect, login answered -> READY
 *        ^---- any failure: every part that was under way ends as KVPI_PART_FAILED ----/
 *
 * The table of net.h has the socket; libvalkey makes the text of commands and reads replies. A bulk
 * reply is put into the spans of its operation by the reader's reply functions: one copy. A record
 * that is written is sent from the spans, without a copy. */
#ifndef KVPI_STORE_REDIS_CONN_H
#define KVPI_STORE_REDIS_CONN_H

#include <valkey/read.h>

#include "store/redis/map.h"
#include "store/redis/part.h"
#include "store/redis/link/lookup.h"
#include "store/redis/link/tls.h"

enum {
    KVPI_CONN_JOBS = 8,
    KVPI_CONN_HEAD = 512, /* of a command before and after the record */
    KVPI_CONN_WHY = 160
};

struct pollfd;

enum kvpi_conn_state { KVPI_CONN_CLOSED = 0, KVPI_CONN_OPENING, KVPI_CONN_READY };

enum kvpi_job_kind {
    KVPI_JOB_LOGIN, /* +OK, or the connection is of no use */
    KVPI_JOB_INFO,  /* text about the server */
    KVPI_JOB_MAP,   /* who has which slot */
    KVPI_JOB_READ,  /* a record into op->spans */
    KVPI_JOB_WRITE,
    KVPI_JOB_COUNT, /* a number for each key: of HAVE, a bit is set if it is not 0 */
    KVPI_JOB_LIST,  /* an answer that is told piece by piece */
    KVPI_JOB_QUIET, /* nobody waits for the answer */
};

struct kvpi_job {
    enum kvpi_job_kind kind;
    struct kvpi_part *part; /* NULL: LOGIN, INFO, MAP, QUIET */
    uint32_t n_replies;     /* that are still to come */
    uint32_t at;            /* COUNT: the key of the part that is answered next */
    const char *right;      /* QUIET: that it needs */
    int type;               /* LIST: of the answer, VALKEY_REPLY_...; instead of STRING also NIL */
};

/* What all connections to a server share. */
struct kvpi_conn_config {
    const struct kvpi_place_of_server *place;
    const struct kvpi_net *net;
    struct kvpi_lookup *lookup; /* of the place's addresses */
    const struct kvpi_tls *tls; /* NULL: without */
    size_t limit_bytes;         /* of one reply, as it comes over the wire */
    uint64_t timeout_ns;
    struct kvpi_map *map; /* what a MAP fills */
    /* The text that INFO gave; valid during the call. */
    void (*info)(void *context, const char *text, size_t n_bytes);
    /* The account lacks this right. */
    void (*denied)(void *context, const char *right);
    /* A piece of what a LIST gave, of its reply of this number; text NULL: nil. */
    void (*piece)(void *context, const struct kvpi_map_at *at, uint32_t number, const char *text,
                  size_t n_bytes);
    void *piece_context;
    void *context;
};

struct kvpi_conn {
    const struct kvpi_conn_config *config;
    struct kvpi_part_list *done;
    enum kvpi_conn_state state;
    valkeyReader *reader; /* there is one as long as there is a socket, thus after the look-up */
    int fd;
    struct kvpi_job jobs[KVPI_CONN_JOBS];
    uint32_t first_job;
    uint32_t n_jobs;
    uint64_t deadline_ns;    /* of the job that is under way; its operation may have less time */
    kvpi_tls_stream *stream; /* once the socket is connected */
    /* Commands that are to be sent. */
    char *text;
    size_t n_text;
    size_t text_room;
    size_t text_sent;
    int no_memory; /* for one of them */
    /* What is sent after them: a command with its record in the middle. */
    struct kvpi_span out[KVP_RECORD_BLOCKS_MAX + 3];
    uint32_t n_out;
    uint32_t out_at;
    size_t out_sent; /* of out[out_at] */
    char head[KVPI_CONN_HEAD];
    char tail[KVPI_CONN_HEAD];
    size_t n_unread; /* bytes that came since the last reply was whole */
    /* The reply that is being read. */
    struct {
        int type;
        long long number;
        char text[KVPI_CONN_WHY];
    } reply;
    uint32_t n_refused;      /* replies of a LIST that were errors; the last is `why` */
    int refused;             /* the server answered, and does not want us */
    int timed_out;           /* why it is closed */
    char why[KVPI_CONN_WHY]; /* it was closed */
};

/* Begin to connect. What fails at once is CLOSED again, with why. */
void kvpi_conn_open(struct kvpi_conn *conn, uint64_t now);
void kvpi_conn_close(struct kvpi_conn *conn);

/* 1: it is READY, and a job without a part can begin: no record is being sent. */
int kvpi_conn_has_room(const struct kvpi_conn *conn);

/* 1: and there is no part under way. */
int kvpi_conn_is_idle(const struct kvpi_conn *conn);

/* Begin a job: its commands follow by kvpi_conn_command. */
void kvpi_conn_begin(struct kvpi_conn *conn, const struct kvpi_job *job, uint64_t now);

/* Put a command behind what is to be sent. */
void kvpi_conn_command(struct kvpi_conn *conn, int argc, const char *const *argv);

/* Send SET key RECORD NX PX ttl, the record from the spans: what they point to is in use. */
void kvpi_conn_set(struct kvpi_conn *conn, const char *key, const struct kvpi_span *spans,
                   uint32_t n_spans, uint64_t ttl_ms);

/* When what is under way fails; UINT64_MAX: nothing is. */
uint64_t kvpi_conn_deadline(const struct kvpi_conn *conn);

/* Send and receive what is possible without waiting; fail what is over its deadline. */
void kvpi_conn_pump(struct kvpi_conn *conn, uint64_t now);

/* What to wait for, as of poll(2). 0: nothing. */
int kvpi_conn_watch(const struct kvpi_conn *conn, struct pollfd *out_fd);

#endif
