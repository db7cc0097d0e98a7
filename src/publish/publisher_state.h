/* publisher_state: what a publisher consists of.
 *
 *   kvp_events ==> tell ==> set of units ==> out: a batch ==> PUB, and kept
 *                                                                    |
 *   requests (ROUTER) ==> answer: batches that are kept, or the set as batches ==> ROUTER
 */
#ifndef KVPI_PUBLISHER_STATE_H
#define KVPI_PUBLISHER_STATE_H

#include "publish/formula.h"
#include "publish/kept_batches.h"
#include "publish/out.h"
#include "publish/units.h"

#include <kvpager/recording.h>

#define KVPI_PUBLISH_ID_BYTES 256u /* libzmq's names of peers have at most 255 */

struct kvpi_publish_space {
    kvp_hash root;
    char lora[KVP_NAME_MAX_BYTES + 1]; /* "": none */
};

/* The one reader that is answered. The others wait in the ROUTER socket. */
struct kvpi_answer {
    enum { KVPI_ANSWER_NONE, KVPI_ANSWER_KEPT, KVPI_ANSWER_SET, KVPI_ANSWER_END } stage;
    uint8_t id[KVPI_PUBLISH_ID_BYTES];
    size_t id_bytes;
    uint64_t next;    /* number of the next batch */
    uint64_t last;    /* SET: the newest batch when the list was made */
    uint64_t stamp;   /* SET: of the set then; younger units are told by later batches */
    uint64_t left_ns; /* when `left` took nothing for too long; what it asked before is dropped */
    uint8_t left[KVPI_PUBLISH_ID_BYTES];
    size_t left_bytes; /* 0: no reader */
    uint64_t moved_ns; /* when the reader last took something */
    uint32_t n_listed;
    uint32_t tier; /* SET: where in which tier it is */
    uint32_t at;
    int is_made;      /* SET: `batch` waits to be sent */
    int is_last;      /* and it is the last one */
    uint32_t *listed; /* [max_units] slots, each unit behind the one before it */
    struct kvpi_out out;
    const uint8_t *batch;
    size_t batch_bytes;
};

struct kvp_publisher {
    void *zmq;
    void *pub;
    void *router; /* NULL: none */
    char topic[KVP_NAME_MAX_BYTES + 1];
    uint32_t unit_tokens;
    uint32_t group;
    uint32_t hashes;
    uint32_t replay_form;
    uint32_t foreign;
    uint64_t heartbeat_ns;
    uint64_t sent_ns; /* the newest batch */
    uint64_t next_event;
    uint64_t now_ns; /* of the call that runs */
    struct kvpi_units set;
    struct kvpi_out_form form;
    struct kvpi_out live;
    struct kvpi_kept kept;
    struct kvpi_formula formula; /* KVP_PUBLISH_VLLM */
    struct kvpi_answer answer;
    uint32_t n_spaces;
    struct kvpi_publish_space *spaces; /* [KVP_PUBLISH_SPACES_MAX] */
    uint32_t n_read;                   /* events of one reading */
    kvp_event *read;                   /* [n_read] */
    int32_t *read_tokens;
    kvp_publisher_stats stats;
};

/* Apply an event, and put into the live batch what it is on the wire. */
void kvpi_tell(kvp_publisher *publisher, const kvp_event *event, const int32_t *tokens);

/* A unit leaves a tier: the same as its event. */
void kvpi_tell_gone(kvp_publisher *publisher, uint32_t slot, uint32_t tier);

/* The adapter of a unit's namespace; NULL: none. */
const char *kvpi_tell_lora(const kvp_publisher *publisher, const struct kvpi_unit *unit);

/* Send the live batch, an empty one, too. */
void kvpi_publish_batch(kvp_publisher *publisher);

/* Is it no event that a publisher can take? */
int kvpi_event_is_wrong(const kvp_publisher *publisher, const kvp_event *event);

/* Take requests and send answers; is there more to send now? */
int kvpi_answer_work(kvp_publisher *publisher);

#endif
