/* conn: one connection to a server, without blocking. Commands go out in order, replies come back
 * in the same order; `jobs` says what each reply is for.
 *
 *     CLOSED -> kvpi_conn_open -> OPENING: look-up, connect, login answered -> READY
 *        ^---- any failure: every part that was under way ends as KVPI_PART_FAILED ----/
 *
 * The table of net.h has the socket; write.c has the commands; libvalkey makes their text and reads
 * replies. A bulk reply is put into the spans of its operation by the reader's reply functions: one
 * copy. A record that is written is sent from the spans, without a copy. */
#ifndef KVPI_STORE_REDIS_CONN_H
#define KVPI_STORE_REDIS_CONN_H

#include <valkey/read.h>

#include "store/redis/redis_map.h"
#include "store/redis/part.h"
#include "store/redis/link/lookup.h"
#include "store/redis/link/tls.h"

enum {
    KVPI_CONN_JOBS = 16,
    KVPI_CONN_AT_ONCE = 4,  /* begin after one look: a renewal, an ASK, its WRITE, one spare */
    KVPI_CONN_FRAME = 1024, /* of commands, without the record that they send */
    KVPI_CONN_WHY = 160
};

/* The record's spans, one of them cut in two, and the frame's pieces. */
enum { KVPI_CONN_OUT = KVP_RECORD_BLOCKS_MAX + 6 };

struct pollfd;

enum kvpi_conn_state { KVPI_CONN_CLOSED = 0, KVPI_CONN_OPENING, KVPI_CONN_READY };

enum kvpi_job_kind {
    KVPI_JOB_LOGIN, /* +OK, or the connection is of no use */
    KVPI_JOB_INFO,  /* text about the server */
    KVPI_JOB_MAP,   /* who has which slot */
    KVPI_JOB_READ,  /* a record into op->spans */
    KVPI_JOB_ASK,   /* whether the record of the next job, a WRITE, is there: then it is not sent */
    KVPI_JOB_WRITE,
    KVPI_JOB_COUNT, /* a number for each key: of HAVE, a bit is set if it is not 0 */
    KVPI_JOB_LIST,  /* an answer that is told piece by piece */
    KVPI_JOB_QUIET, /* no caller waits for the answer */
};

struct kvpi_job {
    enum kvpi_job_kind kind;
    struct kvpi_part *part; /* NULL: LOGIN, INFO, MAP, ASK, QUIET */
    uint32_t n_replies;     /* that are still to come */
    uint32_t at;            /* those that came; COUNT: the key of the part that is answered next */
    int is_large;           /* READ, WRITE: the record is a hash (form.h) */
    int has_ended;          /* WRITE: by an error; what its other commands are answered says less */
    const char *right;      /* QUIET: that it needs */
    int type; /* LIST: of the answer, VALKEY_REPLY_...; instead of one that is no ARRAY also NIL */
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
    void (*number)(void *context, long long number); /* a number, of a LIST of numbers */
    void *piece_context;
    uint64_t *n_lost; /* counts commands of QUIETs that may not have been obeyed; NULL: no QUIETs */
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
    struct kvpi_span out[KVPI_CONN_OUT];
    uint32_t n_out;
    uint32_t out_at;
    size_t out_sent; /* of out[out_at] */
    int is_held;     /* until an ASK is answered */
    char frame[KVPI_CONN_FRAME];
    size_t n_unread; /* bytes that came since the last reply was whole */
    /* The reply that is being read. */
    struct {
        int type;
        long long number; /* of a WRITE's array: the first one */
        uint32_t n_nil;   /* pieces that are not there */
        int has_error;    /* in an array; the text is of the last one */
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

/* 1: it is READY, and KVPI_CONN_AT_ONCE jobs can begin: no record is being sent. */
int kvpi_conn_has_room(const struct kvpi_conn *conn);

/* 1: and there is no part under way. */
int kvpi_conn_is_idle(const struct kvpi_conn *conn);

/* 1: a record is on its way, either way. */
int kvpi_conn_has_record(const struct kvpi_conn *conn);

/* Begin a job: its commands follow by kvpi_conn_command. */
void kvpi_conn_begin(struct kvpi_conn *conn, const struct kvpi_job *job, uint64_t now);

/* Put a command behind what is to be sent. */
void kvpi_conn_command(struct kvpi_conn *conn, int argc, const char *const *argv);

/* Begin a WRITE of a record, from its operation's spans: what they point to is in use. Small: SET
 * key RECORD NX PX ttl. Large: EXISTS key, and if it is not there, HSET and PEXPIRE in a MULTI. */
void kvpi_conn_write(struct kvpi_conn *conn, struct kvpi_part *part, const char *key, int is_large,
                     uint64_t ttl_ms, uint64_t now);

/* When what is under way fails; UINT64_MAX: nothing is. */
uint64_t kvpi_conn_deadline(const struct kvpi_conn *conn);

/* Send and receive what is possible without waiting; fail what is over its deadline. */
void kvpi_conn_pump(struct kvpi_conn *conn, uint64_t now);

/* What to wait for, as of poll(2). 0: nothing. */
int kvpi_conn_watch(const struct kvpi_conn *conn, struct pollfd *out_fd);

#endif
