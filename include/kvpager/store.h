/* kvpager/store.h: stores. KV that outlives the process, verified when it comes back.
 *
 *   kvp_store_config config;
 *   kvp_store_config_init(&config);
 *   config.url = "file:/var/cache/kv?size=200GiB";
 *   config.fingerprint = fingerprint;                 of the model: kvp_fingerprint_make
 *   config.block_bytes[0] = block_bytes;              of one block of group 0 in the host tier
 *   kvp_store_open(&config, &store, why, sizeof why);
 *   ...
 *   kvp_store_put(store, &identity, blocks, tag);     write a record: returns at once
 *   kvp_store_get(store, &identity, blocks, tag);     read it back into these blocks
 *   ...
 *   kvp_store_poll(store, done, capacity, &n_done);   what has ended, by tag
 *   kvp_store_close(store);
 *
 * A store keeps records by key. A record is 1 to KVP_RECORD_BLOCKS_MAX consecutive sealed blocks of
 * one layer group and rank: a header that says what it is, and the KV. All records of a store have
 * the same number of tokens, T = record_blocks x block_tokens. With blocks of several sizes a
 * record of group g has T / group_tokens[g] blocks. In a group with a window, it may have only its
 * last ones: those that a hit at its end needs.
 *
 * A record of recurrent state (KVP_IDENTITY_STATE) has one slot instead of the blocks: block_bytes
 * of its group, the state group (n_groups counts it), is the bytes of a slot. All records of a file
 * store take as much room as the largest. So give states a store of their own, in another PATH
 * with record_blocks 1, unless record_blocks blocks are about as large as a slot.
 *
 * Rules that hold for every store:
 *
 *   - Never wrong KV. A get is KVP_STORE_OK only if the record's header matches every field, token
 *     and key of the identity, and the checksum of the KV is right. Everything else is a miss with
 *     a reason. The blocks of a get that is not OK are undefined.
 *   - A failing disk or server costs a computation, never a request: failures are misses. A store
 *     that fails repeatedly is not used for a while, and tried again later (KVP_STORE_AWAY).
 *   - Calls cost O(requests), never O(bytes): a thread of the store does the work. Nothing
 *     allocates after open. Queues are fixed: KVP_E_AGAIN when full.
 *   - A store is used by one thread at a time, statistics excepted.
 *   - What an operation points to (identity, its tokens and keys, blocks, keys, bits) stays the
 *     caller's, and must stay valid and unchanged until the operation has ended.
 *   - Operations end in any order. Each that was accepted ends exactly once.
 *   - Checksums find damage, not forgery. A process that can write to a store can put any KV into
 *     it. With a secret, records carry a keyed code that is checked before they are used. Without a
 *     secret, a store belongs to one trust domain.
 *   - KV can be turned back into text: a store's files are as secret as its users' prompts.
 *
 * Back ends, by the URL's scheme:
 *
 *   file:PATH?size=BYTES    in a directory; size is the most that all below PATH may take.
 *                           engine=io_uring or engine=threads says how it reads and writes;
 *                           engine=auto (default): by io_uring where the system allows it
 *   memory:?size=BYTES      in this process; for tests, and to try
 *   redis://HOST            on a Redis or Valkey server, by libkvpager_redis. docs/STORES.md has
 *                           its options and what differs: no parent is looked for, a drop leaves
 *                           what needs the record, evict fails, a sync makes nothing durable
 *
 * and further limits, for the first two:
 *
 *   max_age=TIME            a record that was written so long ago is not served any more
 *   quota=BYTES             the most that the records of one namespace may take
 *
 * and for all:
 *
 *   secret=file:PATH        the secret for the keyed code is in this file, 16 to 1024 bytes; white
 *                           space at both ends is no part of it. A link, and a file that another
 *                           user can read, are refused
 *
 * BYTES takes KiB, MiB, GiB and TiB, TIME s, m, h and d. docs/STORES.md has the bytes of a record.
 * kvp_store_stack_open makes one store of several.
 */
#ifndef KVPAGER_STORE_H
#define KVPAGER_STORE_H

#include "identity.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_STORE_KEYS_MAX  8192u /* of one have or drop */
#define KVP_STORE_QUEUE_MAX 4096u /* operations that have not ended */
#define KVP_STORE_LATENCIES 32u   /* buckets of a histogram */

typedef struct kvp_store kvp_store;

/* ---------------------------------------------------------------------------------- open, close */

typedef struct kvp_store_config {
    size_t struct_size;                    /* set by kvp_store_config_init */
    const char *url;                       /* see above */
    kvp_digest fingerprint;                /* of every record; all zero is refused */
    uint32_t block_tokens;                 /* S; default 16 */
    uint32_t n_groups;                     /* layer groups, 1..KVP_GROUPS_MAX; default 1 */
    uint64_t block_bytes[KVP_GROUPS_MAX];  /* KV of one block of each group, 1..2^31-1 */
    uint32_t group_tokens[KVP_GROUPS_MAX]; /* S of each group, T is a multiple of it; 0:
                                 block_tokens (default) */
    uint32_t group_blocks[KVP_GROUPS_MAX]; /* of each group, a record has at most its last so many
                                 blocks, of a window of R tokens ceil(R / S) or more; 0: all
                                 (default). With either, 1..KVP_RECORD_BLOCKS_MAX. The
                                 same for all that share records: others' are dropped */
    uint32_t record_blocks; /* blocks of a record: 1, 2, 4 ... KVP_RECORD_BLOCKS_MAX; 0: the least
                                 with 512 KiB of KV in group 0, as far as group_tokens let it
                                 (default) */
    uint32_t key_bytes;     /* room for the extra keys of a record in its header: 12 + n_bytes for
                                 each; 0..1 MiB; default 1024 */
    uint32_t max_ops;       /* operations that have not ended, 1..KVP_STORE_QUEUE_MAX; default 64 */
    uint32_t threads;       /* 1 (default): a thread of the store works; 0: kvp_store_work does */
    uint64_t (*now)(
        void *context); /* clock, nanoseconds since 1970; NULL (default): the system's */
    void *now_context;
    const void *secret;  /* [secret_bytes] for the keyed code; NULL (default): none, or the URL's */
    size_t secret_bytes; /* 0, or 16..1024 */
} kvp_store_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_API void kvp_store_config_init(kvp_store_config *config);

/* Open a store.
 *
 * Takes:   config       copied, strings and secret too
 *          why_bytes    capacity of out_why
 * Gives:   out_store
 *          out_why      a sentence that names what is wrong, cut to why_bytes; "" on KVP_OK; may be
 *                       NULL
 * Returns: KVP_OK; KVP_E_ARG: a field or the URL; KVP_E_NO_MEMORY; KVP_E_IO: the place cannot
 *          be used
 * After-failure: nothing is open
 * Thread:  any          Blocks: io
 */
KVP_API kvp_status kvp_store_open(const kvp_store_config *config, kvp_store **out_store,
                                  char *out_why, size_t why_bytes);

/* Close a store. Operations that have not begun end with KVP_STORE_CLOSED; the call waits for the
 * others. Completions that were not polled are lost. NULL is ignored.
 * Thread: no other thread is inside a call. Blocks: io */
KVP_API void kvp_store_close(kvp_store *store);

/* Write a URL without its secrets, for messages and logs: the password of a server, and a
 * secret that is not a file's name, are ***. It need not be a URL that kvp_store_open takes. Of one
 * that is malformed, more is hidden: up to the last @.
 *
 * Takes:   text_bytes   capacity of out_text, 1..
 * Gives:   out_text     cut to text_bytes
 * Returns: KVP_OK; KVP_E_ARG: a pointer is NULL, or text_bytes is 0; KVP_E_TOO_SMALL: it was cut
 * Thread:  pure. Cost: O(bytes) */
KVP_API kvp_status kvp_store_url_show(const char *url, char *out_text, size_t text_bytes);

/* Tell the number of blocks of a record, as configured or chosen. Thread: any. */
KVP_API uint32_t kvp_store_record_blocks(const kvp_store *store);

/* Tell the number of blocks of a record of a group, at most T / group_tokens[group]: so many
 * addresses a put or a get of KV takes. 0: there is no such group. Thread: any. Cost: O(1) */
KVP_API uint32_t kvp_store_group_blocks(const kvp_store *store, uint32_t group);

/* Describe how a store does its work here and what it has to go without, for people and logs:
 * "io_uring; past the page cache". docs/STORES.md has what it may say. Programs do not parse it.
 *
 * Takes:   text_bytes   capacity of out_text, 1..; 300 are always enough; of a stack, for each of
 *                       its stores
 * Gives:   out_text     cut to text_bytes
 * Returns: KVP_OK; KVP_E_ARG
 * Thread:  any. Blocks: never. Cost: O(1) */
KVP_API kvp_status kvp_store_describe(const kvp_store *store, char *out_text, size_t text_bytes);

/* --------------------------------------------------------------------------------------- stacks */

#define KVP_STORE_STACK_MAX 8u /* stores of a stack */

typedef struct kvp_store_stack_config {
    size_t struct_size;        /* set by kvp_store_stack_config_init */
    kvp_store *const *stores;  /* [n_stores] open, nearest first: a disk before a server */
    uint32_t n_stores;         /* 1..KVP_STORE_STACK_MAX */
    uint32_t reserved;         /* 0 */
    uint64_t nearer_bytes_s;   /* most KV a second that gets write to nearer stores; 0 (default): no
                                   limit */
    uint64_t nearer_bytes_day; /* and in each day since 1970; 0 (default): no limit */
} kvp_store_stack_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
KVP_API void kvp_store_stack_config_init(kvp_store_stack_config *config);

/* Make one store of several, nearest first. All calls of this header take it.
 *
 *   put     goes to each store. KVP_STORE_OK: at least one wrote the record; KVP_STORE_KNOWN: else
 *           at least one had it; otherwise as the nearest store says
 *   get     takes the nearest store that has the record: a miss of any kind goes on to the next.
 *           What came from a farther one is written to the nearer ones that lacked it before the
 *           get ends, and its parent before it, if a get of that is on its way. If they refuse,
 *           the get is KVP_STORE_OK all the same. The identity is that of a put, with parent and
 *           space. Without a hit it is KVP_STORE_ABSENT if all stores say so, else what the
 *           nearest of the others says
 *   have    asks a farther store only for what nearer ones lack. KVP_STORE_OK: at least one store
 *           answered
 *   drop, evict, sync   go to each store. KVP_STORE_OK: all did it; otherwise as the nearest says
 *           that did not
 *   stats   the operations of the stack. Records, bytes, room, and what went wrong (bad, reread,
 *           failed, away), are the sums of its stores; away_ns is the least. Each store's own are
 *           those of kvp_store_stats_get on it
 *
 * A store of a stack that fails is left alone and tried again by itself; the stack never is.
 *
 * Takes:   config       copied. The stores differ in URL and secret only, and in max_ops and
 *                       key_bytes, of which the least holds; no operation of theirs is on its way
 *          why_bytes    capacity of out_why
 * Gives:   out_store
 *          out_why      a sentence that names what is wrong; may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_NO_MEMORY; KVP_E_IO: libcrypto or the system gave nothing
 * After-failure: the stores are the caller's, and unchanged
 * Owns:    the stores are the stack's until it is closed, which closes them, nearest first. The
 *          caller still may ask them for statistics and descriptions
 * Thread:  as kvp_store_open
 */
KVP_API kvp_status kvp_store_stack_open(const kvp_store_stack_config *config, kvp_store **out_store,
                                        char *out_why, size_t why_bytes);

/* Find store `number` of a stack, nearest first, to ask it for statistics and descriptions.
 * Returns: NULL: there is none. Owns: the stack. Thread: any. Cost: O(1) */
KVP_API const kvp_store *kvp_store_stack_part(const kvp_store *stack, uint32_t number);

/* ----------------------------------------------------------------------------------- operations */

enum {
    KVP_STORE_PUT = 1,
    KVP_STORE_GET = 2,
    KVP_STORE_HAVE = 3,
    KVP_STORE_DROP = 4,
    KVP_STORE_SYNC = 5,
    KVP_STORE_EVICT = 6
};

/* How an operation ended. */
enum {
    KVP_STORE_OK = 0,        /* put: written; get: the blocks hold this KV; the others: done */
    KVP_STORE_KNOWN = 1,     /* put: the record was there already; nothing was written */
    KVP_STORE_ABSENT = 2,    /* get: there is no such record */
    KVP_STORE_RACED = 3,     /* get: the record went while it was being read */
    KVP_STORE_BAD = 4,       /* get: the record was damaged or another's, twice; it is dropped */
    KVP_STORE_NO_PARENT = 5, /* put: the record before it is neither there nor being written */
    KVP_STORE_NO_ROOM = 6,   /* put: no room could be made */
    KVP_STORE_FAILED = 7,    /* reading or writing failed */
    KVP_STORE_AWAY = 8,      /* the store failed before and is left alone for now */
    KVP_STORE_CLOSED = 9     /* the store is being closed */
};

/* An operation that has ended. */
typedef struct kvp_store_done {
    uint64_t tag;    /* as given */
    uint32_t op;     /* KVP_STORE_PUT ... */
    uint32_t result; /* KVP_STORE_OK ... */
} kvp_store_done;

/* Write a record. Same record: the second put is KVP_STORE_KNOWN. A record goes under its parent: a
 * put of a record whose parent is not there is refused, unless identity->parent is all zero. A
 * parent that another writer of the same directory has stored is there, too.
 *
 * Takes:   identity     fingerprint, block_tokens and n_blocks as the store's
 *          blocks       [kvp_store_group_blocks] of block_bytes[identity->group] bytes each; of a
 *                       state [1]
 *          tag          any number; comes back in kvp_store_done
 * Returns: KVP_OK: accepted, will end; KVP_E_ARG: does not fit the store's configuration;
 *          KVP_E_TOO_LONG: the extra keys exceed key_bytes; KVP_E_AGAIN: max_ops have not ended
 * Owns:    all that is pointed to is in use until the operation ends
 * Thread:  the store's. Blocks: never. Cost: O(n_blocks + keys)
 */
KVP_API kvp_status kvp_store_put(kvp_store *store, const kvp_identity *identity,
                                 void *const *blocks, uint64_t tag);

/* Read a record into `blocks`. The parameters are those of kvp_store_put.
 * Returns: as kvp_store_put
 * Owns:    all that is pointed to is in use until the operation ends
 * Thread:  the store's. Blocks: never. Cost: O(n_blocks + keys) */
KVP_API kvp_status kvp_store_get(kvp_store *store, const kvp_identity *identity,
                                 void *const *blocks, uint64_t tag);

/* Ask which keys have a record. The answer may be out of date when it comes: a get decides.
 *
 * Takes:   keys         [n_keys] of kvp_record_key; n_keys 1..KVP_STORE_KEYS_MAX
 * Gives:   bits         [ceil(n_keys / 64)] bit i of word i / 64, when the operation has ended
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_AGAIN
 * Thread:  the store's. Blocks: never. Cost: O(1)
 */
KVP_API kvp_status kvp_store_have(kvp_store *store, const kvp_digest *keys, uint32_t n_keys,
                                  uint64_t *bits, uint64_t tag);

/* Drop records, and those that need them. Keys without a record are ignored. Records of other
 * writers of a directory stay; those of this store that need them go.
 *
 * Takes:   keys         [n_keys] of kvp_record_key; n_keys 1..KVP_STORE_KEYS_MAX
 * Returns: KVP_OK: accepted, will end; KVP_E_ARG; KVP_E_AGAIN: max_ops have not ended
 * Owns:    keys are in use until the operation ends
 * Thread:  the store's. Blocks: never. Cost: O(1)
 */
KVP_API kvp_status kvp_store_drop(kvp_store *store, const kvp_digest *keys, uint32_t n_keys,
                                  uint64_t tag);

/* Which records an operator means. A store knows the time of a record to the minute: one that may
 * have been written at or after written_before is not meant. */
typedef struct kvp_store_match {
    uint64_t written_before; /* seconds since 1970; 0: no record; UINT64_MAX: of any age */
    uint64_t space;          /* kvp_namespace_number, if one_space */
    uint32_t one_space;      /* 0: records of all namespaces */
    uint32_t reserved;       /* 0 */
} kvp_store_match;

/* Drop the records of a namespace, those of a certain age, or both; and those that need them. A
 * record that is being written now goes, too, if it matches: its put ends with
 * KVP_STORE_NO_PARENT.
 *
 * Takes:   match        copied
 * Returns: KVP_OK: accepted, will end; KVP_E_ARG; KVP_E_AGAIN: max_ops have not ended
 * Thread:  the store's. Blocks: never. Cost: O(1); the store's thread: O(records)
 */
KVP_API kvp_status kvp_store_evict(kvp_store *store, const kvp_store_match *match, uint64_t tag);

/* Make what has ended durable: after the sync has ended with KVP_STORE_OK, every put that ended
 * before it was submitted survives a loss of power.
 *
 * Returns: KVP_OK: accepted, will end; KVP_E_ARG; KVP_E_AGAIN: max_ops have not ended
 * Thread:  the store's. Blocks: never. Cost: O(1)
 */
KVP_API kvp_status kvp_store_sync(kvp_store *store, uint64_t tag);

/* Take what has ended.
 *
 * Gives:   out_done     [out_n_done], at most capacity
 * Returns: KVP_OK, also when nothing has ended; KVP_E_ARG
 * Thread:  the store's. Blocks: never. Cost: O(out_n_done)
 */
KVP_API kvp_status kvp_store_poll(kvp_store *store, kvp_store_done *out_done, uint32_t capacity,
                                  uint32_t *out_n_done);

/* Give a file descriptor for poll(2): it is readable while an operation has ended that was not
 * polled. Do not read from it. -1: this system has none. Thread: any. */
KVP_API int kvp_store_fd(const kvp_store *store);

/* Wait until an operation has ended that was not polled, or timeout_ns have passed.
 * Returns: KVP_OK; KVP_E_AGAIN: nothing has ended; KVP_E_ARG. Thread: any. Blocks: io */
KVP_API kvp_status kvp_store_wait(kvp_store *store, uint64_t timeout_ns);

/* Do the store's work, if config.threads is 0: begin what was accepted and end what is done.
 * Gives:   out_idle     1: nothing is left to do; may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE: the store has a thread
 * Thread:  one at a time. Blocks: io. Cost: O(bytes) */
KVP_API kvp_status kvp_store_work(kvp_store *store, int *out_idle);

/* ----------------------------------------------------------------------------------- statistics */

/* Why a record was bad. */
enum {
    KVP_BAD_DAMAGED = 0,  /* the header's checksum is wrong, or there is no header */
    KVP_BAD_VERSION = 1,  /* written by another version, or in another byte order */
    KVP_BAD_PLACE = 2,    /* of another slot, or of an earlier use of it */
    KVP_BAD_LENGTH = 3,   /* of another size */
    KVP_BAD_IDENTITY = 4, /* of other tokens, keys, prefix, model, group, slice or kind */
    KVP_BAD_PAYLOAD = 5,  /* the KV's checksum is wrong */
    KVP_BAD_CODE = 6,     /* the keyed code is missing or wrong */
    KVP_BAD_REASONS = 7
};

/* Name a reason as statistics show it: "damaged", "version", ...; "?" for a number that is none.
 * Gives: a static string. Thread: pure. */
KVP_API const char *kvp_bad_name(uint32_t reason);

typedef struct kvp_store_stats {
    /* gauges */
    uint64_t records; /* there now */
    uint64_t bytes;   /* that they take, headers included */
    uint64_t size;    /* limit of bytes */
    uint64_t retired; /* places that could not be read or written, and are not used again until the
                         store is opened again: at most an eighth of all */
    uint64_t queued;  /* accepted and not ended */
    uint64_t away_ns; /* for how long the store is left alone from now on; 0: it is used. Of servers
                         that are left alone one by one, the least */
    /* counters */
    uint64_t puts;    /* ended, whatever the result */
    uint64_t stored;  /* puts that wrote a record */
    uint64_t known;   /* puts of a record that was there */
    uint64_t refused; /* puts without parent or room */
    uint64_t gets;
    uint64_t hits;
    uint64_t absent;
    uint64_t raced;
    uint64_t bad[KVP_BAD_REASONS]; /* records that were dropped, by reason */
    uint64_t reread;               /* records that were bad at first and right when read again */
    uint64_t failed;               /* operations that failed for the disk's or the server's sake */
    uint64_t away;                 /* operations while the store was left alone */
    uint64_t evicted;              /* records dropped to make room, or for a quota */
    uint64_t dropped;       /* records dropped by kvp_store_drop and kvp_store_evict, because they
                               were bad, or because their parent went */
    uint64_t expired;       /* records that were older than max_age */
    uint64_t read_bytes;    /* KV of hits */
    uint64_t written_bytes; /* KV of records written */
    uint64_t get_ns[KVP_STORE_LATENCIES]; /* gets by time from accepted to ended: bucket b counts
                                             those below 2^(b+10) ns, the last all others */
    uint64_t put_ns[KVP_STORE_LATENCIES];
    uint64_t staged; /* puts and gets whose blocks were copied on their way, because an address or
                        block_bytes is no multiple of 4096 */
    uint64_t get_sum_ns; /* gets: time from accepted to ended, of all together */
    uint64_t put_sum_ns;
} kvp_store_stats;

/* Read gauges and counters. Each number is right by itself.
 * Returns: KVP_OK; KVP_E_ARG. Thread: any. Cost: O(1). */
KVP_API kvp_status kvp_store_stats_get(const kvp_store *store, kvp_store_stats *out_stats);

/* Write statistics as Prometheus text (exposition format 0.0.4): kvp_store_... with HELP and TYPE.
 *
 * Takes:   labels       put into the braces of each sample, as in model="m",store="disk"; NULL or
 *                       "": none. Commas between them, quotes and escapes are the caller's
 *          capacity     bytes of out_text; 32 KiB are enough without labels
 * Gives:   out_text     ends with a zero byte; cut, if capacity is too small
 *          out_bytes    of the whole text, without the zero byte; may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_TOO_SMALL: the text was cut
 * Thread:  pure. Cost: O(1), allocates nothing
 */
KVP_API kvp_status kvp_store_stats_text(const kvp_store_stats *stats, const char *labels,
                                        char *out_text, size_t capacity, size_t *out_bytes);

/* ---------------------------------------------------------------------------------- for operators
 *
 * These look at the directories of file stores, or at Redis and Valkey servers, without opening a
 * store: while engines use them, or after. They need no model and no fingerprint. Nothing is
 * written but by kvp_store_clean.
 *
 * A server is reported as a directory: its path is a URL, and of the other fields only status,
 * bytes (its memory) and records are set. Its records have no slots, generations and parents;
 * KVP_SCAN_RECORDS tells their payload_bytes, too. */

/* One writer's directory. */
typedef struct kvp_store_directory {
    const char *path;
    uint8_t fingerprint[8]; /* its first bytes */
    kvp_status status;      /* KVP_OK; KVP_E_VERSION: of another version; KVP_E_FORMAT: the log's
                                header is damaged; KVP_E_IO: it cannot be read. Then what follows,
                                opened_ns and bytes excepted, is zero */
    const char *why;        /* KVP_E_IO: the reason, in words; else "" */
    uint32_t in_use;        /* 1: its writer lives */
    uint64_t opened_ns;     /* when it was opened last, since 1970; 0: unknown */
    uint64_t bytes;         /* of its files, as `size` counts them */
    uint64_t slot_bytes;    /* of a record's place; of a server, what a record takes of its memory:
                               the mean of some; 0: it does not tell */
    uint32_t header_bytes;  /* of these, for the header */
    uint32_t record_blocks;
    uint32_t block_tokens;
    uint32_t n_slots; /* at most */
    uint64_t records; /* that the log knows and that can be reached */
    uint64_t log_entries;
    uint64_t damaged_entries; /* of the log, left out */
} kvp_store_directory;

/* How a record was found: KVP_BAD_... or one of these. */
enum {
    KVP_FOUND_GOOD = KVP_BAD_REASONS,
    KVP_FOUND_UNREADABLE, /* reading failed, or the file is too short */
    KVP_FOUND_RACED,      /* its writer replaced it meanwhile */
    KVP_FOUND_UNREAD,     /* only the log was looked at */
    KVP_FOUND_KINDS
};

/* Name it: kvp_bad_name, or "good", "unreadable", "raced", "unread". Thread: pure. */
KVP_API const char *kvp_found_name(uint32_t found);

/* One record. What the log says, and if the header was read and is whole, what that says. */
typedef struct kvp_store_record {
    uint32_t found;
    uint32_t slot;
    uint32_t generation;
    uint32_t parent;     /* slot of the record before; UINT32_MAX: it is the first, or the record
                            before is in another directory */
    uint64_t space;      /* kvp_namespace_number */
    uint64_t written;    /* seconds since 1970; to the minute if only the log was looked at */
    uint32_t has_header; /* 1: what follows is set */
    uint32_t kind;       /* KVP_IDENTITY_... */
    uint32_t group;
    uint32_t position; /* of the first token */
    uint32_t n_blocks;
    kvp_slice slice;
    uint64_t payload_bytes;
    kvp_digest digest;
} kvp_store_record;

/* How far a scan looks. */
enum {
    KVP_SCAN_DIRECTORIES = 0, /* logs are read, records are counted */
    KVP_SCAN_RECORDS = 1,     /* and told one by one */
    KVP_SCAN_HEADERS = 2, /* and their headers are read and checked: identity, slot, generation */
    KVP_SCAN_PAYLOADS = 3 /* and the KV: checksum, and keyed code with a secret */
};

typedef struct kvp_store_scan_options {
    size_t struct_size; /* set by kvp_store_scan_options_init */
    uint32_t depth;     /* KVP_SCAN_...; default KVP_SCAN_DIRECTORIES */
    uint32_t one_space; /* 1: records of this namespace only; default 0 */
    uint64_t space;
    const void *secret; /* [secret_bytes], as kvp_store_config's; default none */
    size_t secret_bytes;
    void (*directory)(void *context, const kvp_store_directory *directory);
    void (*record)(void *context, const kvp_store_record *record); /* after its directory's */
    void *context;
} kvp_store_scan_options;

/* Fill `options` with the defaults. NULL is ignored. Thread: pure. */
KVP_API void kvp_store_scan_options_init(kvp_store_scan_options *options);

/* Look at all directories of a file store, or at all servers.
 *
 * A record that is bad is read twice. In a directory that is in use, the log is read again before a
 * record is called bad. Pointers that are given to the functions are valid during the call.
 *
 * Takes:   url          file:PATH, redis://HOST or rediss://HOST; options of kvp_store_open that
 *                       say nothing here are allowed
 *          options      functions may be NULL
 *          why_bytes    capacity of out_why
 * Gives:   out_why      a sentence that names what is wrong; may be NULL
 * Returns: KVP_OK, also if records are bad; KVP_E_ARG; KVP_E_NO_MEMORY; KVP_E_IO: PATH cannot be
 *          read, or a server does not answer or refuses a command
 * Thread:  any          Blocks: io          Cost: O(entries), O(bytes) for KVP_SCAN_PAYLOADS
 */
KVP_API kvp_status kvp_store_scan(const char *url, const kvp_store_scan_options *options,
                                  char *out_why, size_t why_bytes);

/* What kvp_store_clean did. */
typedef struct kvp_store_cleaned {
    uint64_t directories; /* that were looked at */
    uint64_t in_use;      /* of these, left alone because their writer lives: kvp_store_evict */
    uint64_t unknown;     /* of another version, damaged or not writable, and left alone */
    uint64_t records;     /* dropped */
    uint64_t bytes;       /* that they took: room for other records */
} kvp_store_cleaned;

/* Drop records of a file store that no writer has open, as kvp_store_evict does; or of servers,
 * whether they are in use or not, and without the records that need them.
 *
 * Gives:   out_why      with KVP_OK, of the first directory that was left alone as `unknown`: its
 *                       path and the reason; else ""
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_NO_MEMORY; KVP_E_IO: PATH cannot be read, or a log not be
 *          written
 * After-failure: out_cleaned tells what was done
 * Thread:  any          Blocks: io          Cost: O(entries)
 */
KVP_API kvp_status kvp_store_clean(const char *url, const kvp_store_match *match,
                                   kvp_store_cleaned *out_cleaned, char *out_why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
