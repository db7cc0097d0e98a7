/* kvpager/publish.h: events on the wire that routers read. libkvpager_zmq, which needs libzmq,
 * msgpack's C library and libcrypto.
 *
 *   kvp_publisher_config config;
 *   kvp_publisher_config_init(&config);
 *   config.endpoint = "tcp://127.0.0.1:5557";
 *   config.replay_endpoint = "tcp://127.0.0.1:5558";
 *   config.first_number = microseconds_since_1970;
 *   config.max_units = 2 * (n_blocks + n_host_blocks);
 *   kvp_publisher_open(&config, &publisher, why, sizeof why);
 *   ...                                                after each step, or in a thread of its own:
 *   status = kvp_publisher_read(publisher, cache, now);
 *   if (status == KVP_E_BEHIND) kvp_publisher_resync(publisher, cache, now);
 *   kvp_publisher_work(publisher, now, NULL);
 *   ...
 *   kvp_publisher_close(publisher);
 *
 * Batches go out on a PUB socket in three frames: topic, number (8 bytes, big-endian), and msgpack
 * [time in seconds, events, rank]. A ROUTER socket answers requests for batches that were missed,
 * [empty, number]: with the batches from that number on, and an end of number -1. This is the wire
 * of vLLM and SGLang, which Dynamo's and llm-d's routers read.
 *
 * The wire's rules, which are not those of events.h:
 *
 *   - Numbers begin at first_number. Taken from a clock, they rise over restarts, so that a restart
 *     is a gap, which readers notice.
 *   - A reader that asks for a number that is not remembered any more, as a new one does, gets
 *     AllBlocksCleared and the whole set. It ends with the number of the newest batch.
 *   - An empty batch goes out when nothing else did for heartbeat_ns: a loss is noticed then.
 *   - On the device, readers forget what is behind a removed unit. So what is behind it is removed
 *     first, the last units first, and announced again when the unit is stored again.
 *   - The wire has no namespaces: a KVP_EVENT_CLEARED of one becomes removals. Readers look for
 *     tokens, so what a namespace separates is not separated there. Name the namespaces that are
 *     to be published with kvp_publisher_space.
 *   - Units with extra keys, and what is behind them, are left out: a reader would take them for
 *     those of the same tokens without keys.
 *
 * A publisher keeps the set in its own memory, at most max_units. A unit that finds no room is not
 * published, and counted (dropped_units): readers find less, never more. Calls never wait. What
 * libzmq queues is its own, at most queue_batches for each reader.
 */
#ifndef KVPAGER_PUBLISH_H
#define KVPAGER_PUBLISH_H

#include "events.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tier of events for kvp_publisher_put, beside KVP_DEVICE and KVP_HOST. */
#define KVP_PUBLISH_STORE 2u

/* Namespaces that kvp_publisher_space takes. */
#define KVP_PUBLISH_SPACES_MAX 256u

enum {
    KVP_PUBLISH_MAPS = 0,  /* events as maps with a "type": vLLM from 0.24 on, SGLang */
    KVP_PUBLISH_ARRAYS = 1 /* as arrays that begin with the type: vLLM before */
};

enum {
    KVP_PUBLISH_OWN = 0, /* hashes: 64 bits of kvp_event.hash, the last 8 bytes, big-endian */
    KVP_PUBLISH_VLLM = 1 /* those of vLLM with --prefix-caching-hash-algo sha256_cbor */
};

enum {
    KVP_PUBLISH_MEDIA_VLLM = 0,  /* tiers are called GPU, CPU, STORAGE */
    KVP_PUBLISH_MEDIA_SGLANG = 1 /* GPU, CPU_PINNED, DISK, as SGLang calls them */
};

enum {
    KVP_PUBLISH_REPLAY_TOPIC =
        0, /* replayed batches begin with the topic: vLLM from 0.26 on, SGLang */
    KVP_PUBLISH_REPLAY_PLAIN = 1 /* with the number: vLLM before */
};

typedef struct kvp_publisher_config {
    size_t struct_size;          /* set by kvp_publisher_config_init */
    const char *endpoint;        /* libzmq's, as "tcp://127.0.0.1:5557"; bound. Needed */
    const char *replay_endpoint; /* bound; NULL (default): no replay */
    const char *topic;           /* "" (default); llm-d expects "kv@HOST@MODEL" */
    const char *store_medium;    /* name of KVP_PUBLISH_STORE; NULL (default): by `media` */
    uint32_t unit_tokens;        /* U of the cache, 1..KVP_BLOCK_TOKENS_MAX; default 16 */
    uint32_t max_units;     /* 1..2^28; default 65536. Of a cache: twice its blocks of both tiers */
    uint32_t group;         /* layer group whose events are sent; default 0 */
    int32_t rank;           /* data-parallel rank in each batch; 0..; default 0 */
    uint32_t form;          /* KVP_PUBLISH_MAPS (default), _ARRAYS */
    uint32_t hashes;        /* KVP_PUBLISH_OWN (default), _VLLM */
    uint32_t media;         /* KVP_PUBLISH_MEDIA_VLLM (default), _SGLANG */
    uint32_t replay_form;   /* KVP_PUBLISH_REPLAY_TOPIC (default), _PLAIN */
    uint32_t queue_batches; /* that libzmq queues for a reader, then it loses some; 1..10^6; default
                               10,000 */
    uint32_t kept_batches;  /* that are remembered for replay, 1..10^6; default 10,000 */
    uint32_t foreign;      /* 1: hashes of events are another program's, given by kvp_publisher_put:
                               all are sent as they are; 0 (default): kvpager's */
    uint64_t kept_bytes;   /* of them together, 65,536..2^40; default 8 MiB */
    uint64_t heartbeat_ns; /* default 10^9; 0: none */
    uint64_t first_number; /* 1..2^62; needed */
} kvp_publisher_config;

typedef struct kvp_publisher kvp_publisher;

typedef struct kvp_publisher_stats {
    uint64_t next_event; /* what kvp_publisher_read reads next */
    uint64_t newest;     /* number of the newest batch; first_number - 1: none yet */
    uint64_t oldest;     /* remembered; newest + 1: none */
    uint64_t batches;    /* sent, heartbeats included */
    uint64_t heartbeats;
    uint64_t stored; /* units, announced or announced again */
    uint64_t removed;
    uint64_t cleared;        /* AllBlocksCleared */
    uint64_t replays;        /* requests answered from memory */
    uint64_t snapshots;      /* requests answered with the whole set */
    uint64_t bad_requests;   /* requests that were none, and those of readers that took no answer */
    uint64_t failed_sends;   /* batches that libzmq did not take; readers see a gap */
    uint64_t dropped_units;  /* that found no room */
    uint64_t separate_units; /* that are not told, because they have extra keys */
    uint64_t units;          /* there is room for max_units: those in use */
    uint64_t memory_bytes;   /* that kvp_publisher_open took, libzmq's not included */
} kvp_publisher_stats;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_API void kvp_publisher_config_init(kvp_publisher_config *config);

/* Open a publisher: bind its sockets.
 *
 * Takes:   config       copied, with what it points to
 *          why_bytes    capacity of out_why
 * Gives:   out_publisher  the caller's; kvp_publisher_close
 *          out_why      a sentence that names what is wrong, cut to why_bytes; "" on KVP_OK; may be
 *                       NULL
 * Returns: KVP_OK; KVP_E_ARG: a field; KVP_E_NO_MEMORY; KVP_E_IO: an endpoint cannot be bound, or
 *          libcrypto or libzmq refuses
 * After-failure: nothing is open
 * Thread:  any          Blocks: never. Cost: takes the memory of max_units and kept_bytes at once
 */
KVP_API kvp_status kvp_publisher_open(const kvp_publisher_config *config,
                                      kvp_publisher **out_publisher, char *out_why,
                                      size_t why_bytes);

/* Close a publisher; what libzmq has queued has up to a second to go out. NULL is ignored.
 * Thread: no other thread is inside a call. Blocks: io, for a second at most */
KVP_API void kvp_publisher_close(kvp_publisher *publisher);

/* Tell a namespace, and from the first call on no others. Call it before the first event.
 *
 * Takes:   root         kvp_hash_root of the namespace
 *          lora_name    of the adapter whose KV it has, 1..KVP_NAME_MAX_BYTES bytes; NULL: none
 * Returns: KVP_OK; KVP_E_ARG: a pointer is NULL, the root is named already, or a name with
 *          KVP_PUBLISH_VLLM, whose formula has the adapter's path, too; KVP_E_NO_NAMESPACES: there
 *          are KVP_PUBLISH_SPACES_MAX
 * After-failure: unchanged
 * Thread:  one at a time for a publisher. Cost: O(namespaces told before) */
KVP_API kvp_status kvp_publisher_space(kvp_publisher *publisher, const kvp_hash *root,
                                       const char *lora_name);

/* Read what a cache's events say since the last call, and send it.
 *
 * Takes:   cache        its unit_tokens and max_events suit; the same in each call
 *          now_ns       since 1970; does not fall
 * Returns: KVP_OK; KVP_E_BEHIND: events are gone, call kvp_publisher_resync; KVP_E_AGAIN: the cache
 *          overwrote each time what was read; KVP_E_STATE: max_events is 0; KVP_E_ARG: a pointer is
 *          NULL, or the cache's unit_tokens is another
 * After-failure: what was read before has been sent
 * Thread:  one at a time for a publisher, also beside calls of the cache. Blocks: never. Cost:
 *          O(events), and what they announce again
 */
KVP_API kvp_status kvp_publisher_read(kvp_publisher *publisher, const kvp_cache *cache,
                                      uint64_t now_ns);

/* Send how the cache's set differs from what was sent, and read events from there on: after
 * KVP_E_BEHIND, or to begin with a cache that has units already.
 *
 * Returns: as kvp_publisher_read, and KVP_E_NO_MEMORY
 * After-failure: unchanged
 * Thread:  the cache's, and one at a time for a publisher. Blocks: never. Cost: O(units); allocates
 *          the set while it runs
 */
KVP_API kvp_status kvp_publisher_resync(kvp_publisher *publisher, kvp_cache *cache,
                                        uint64_t now_ns);

/* Send events of something else than a cache: of stores, or of tests.
 *
 * Takes:   events       [n_events] kind, tier (KVP_PUBLISH_STORE, too), hash, group; of STORED also
 *                       parent, root, position, n_tokens. `number` is not read
 *          tokens       [n_events x U], those of event i at i x U
 * Returns: KVP_OK; KVP_E_ARG: a pointer is NULL, or a field of an event is out of range
 * After-failure: unchanged
 * Thread:  one at a time for a publisher. Blocks: never. Cost: O(events), and what they announce
 *          again
 */
KVP_API kvp_status kvp_publisher_put(kvp_publisher *publisher, const kvp_event *events,
                                     uint32_t n_events, const int32_t *tokens, uint64_t now_ns);

/* Answer readers that ask for batches, and send a heartbeat if it is time. Call it often: readers
 * wait for the answer. One call sends 64 batches of an answer at most; a reader that takes nothing
 * for 5 s loses it, with what it asked meanwhile; others wait for it so long.
 *
 * Gives:   out_busy     1: there is more to send now; may be NULL
 * Returns: KVP_OK; KVP_E_ARG: the publisher is NULL
 * Thread:  one at a time for a publisher. Blocks: never. Cost: O(1) without a request; O(units)
 *          where a whole set begins
 */
KVP_API kvp_status kvp_publisher_work(kvp_publisher *publisher, uint64_t now_ns, int *out_busy);

/* Read counters. Returns: KVP_OK; KVP_E_ARG: a pointer is NULL. Thread: one at a time for a
 * publisher. Cost: O(1) */
KVP_API kvp_status kvp_publisher_stats_get(const kvp_publisher *publisher,
                                           kvp_publisher_stats *out_stats);

/* Tell where a socket is bound, as for "tcp://127.0.0.1:*".
 *
 * Takes:   is_replay    0: endpoint; 1: replay_endpoint
 *          text_bytes   capacity of out_text, 1..
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE: there is none; KVP_E_TOO_SMALL
 * Thread:  one at a time for a publisher */
KVP_API kvp_status kvp_publisher_endpoint(const kvp_publisher *publisher, int is_replay,
                                          char *out_text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
