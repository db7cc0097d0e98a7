/* kvpager/types.h: the dictionary. Statuses, handles, and the small structs that cross every room.
 *
 * Words used in all headers (docs/ARCHITECTURE.md has the figure):
 *
 *   block      KV memory of `block_tokens` tokens. Block 0 is the null block: never handed out
 *   slot       block * block_tokens + offset: where one token's KV lives
 *   unit       the grain of identity, `unit_tokens` tokens; divides block_tokens
 *   node       one unit's tokens (and extra keys) after a given prefix: what KV is of
 *   sequence   one stream of tokens with a row of block ids (its block table)
 *   held       a block that at least one sequence's row refers to (reference count above 0)
 *   cached     not held, content known: may be hit, may be evicted
 *   free       no content
 *   sealed     slots whose KV is computed and attached to a node: never written while attached
 *
 * Structs that a caller fills. If there is an init function (kvp_config_init), call it, then set
 * fields: it has defaults that are not 0. Every other struct is initialised by name, and fields
 * that are left out are 0, the default:
 *
 *   kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = 10};
 *
 * (C++ before C++20: {} first, then the fields.)
 *
 * Sizes. If a call fills an array and takes its `capacity`, capacity 0 asks for the size. Then the
 * array may be NULL, the call gives the size needed, and the status is KVP_OK. Nothing is taken,
 * begun, changed or written, and kvp_cache_shortage_get keeps its answer. Other mistakes in the
 * call are refused as usual. A capacity above 0 that is too small is KVP_E_TOO_SMALL; the size is
 * given, too.
 *
 * Shape letters: B sequences in a batch, T tokens of the call, M blocks of a row, N blocks of the
 * pool, S tokens of a block, U tokens of a unit.
 */
#ifndef KVPAGER_TYPES_H
#define KVPAGER_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(KVP_EXPORT) /* the library itself is compiled */
#define KVP_API __declspec(dllexport)
#elif defined(__GNUC__) && !defined(_WIN32)
#define KVP_API __attribute__((visibility("default")))
#else
#define KVP_API
#endif
#if defined(__GNUC__)
#define KVP_EXTENSION __extension__ /* C99 has no unions without a name */
#else
#define KVP_EXTENSION
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_VERSION_MAJOR 0
#define KVP_VERSION_MINOR 2
#define KVP_VERSION_PATCH 0
#define KVP_VERSION       "0.2.0"

/* Block id 0 of every pool: never handed out, content undefined, safe for a kernel to read. */
#define KVP_NULL_BLOCK 0

/* "No slot": the KV of this token is there already and must not be written. */
#define KVP_NO_SLOT (-1)

/* Tiers: where KV is. */
enum { KVP_DEVICE = 0, KVP_HOST = 1 };

/* As a position: the end of the sequence. */
#define KVP_END UINT32_MAX

/* Largest sizes that any configuration may ask for. */
#define KVP_BLOCK_TOKENS_MAX  65536u
#define KVP_NAME_MAX_BYTES    255u
#define KVP_KEY_MAX_BYTES     52u
#define KVP_RETENTION_CLASSES 8u
#define KVP_GROUPS_MAX        8u
#define KVP_TREE_TOKENS_MAX   65536u

/* Status classes: what the caller should do about it.
 *   retry   nothing is wrong: not now. Release something, or wait, and call again
 *   caller  the call is wrong and will be wrong again
 *   data    bytes or tokens that were asked for are not there, or are damaged
 *   system  the machine refused, or the cache's own state is broken
 */
enum { KVP_CLASS_OK = 0, KVP_CLASS_RETRY, KVP_CLASS_CALLER, KVP_CLASS_DATA, KVP_CLASS_SYSTEM };

/* X(name, number, class, text). Numbers are frozen. */
#define KVP_STATUS_TABLE(X)                                                                        \
    X(OK, 0, OK, "success")                                                                        \
    X(E_ARG, -1, CALLER, "an argument is null, out of range or inconsistent")                      \
    X(E_HANDLE, -2, CALLER, "the handle is closed, stale or belongs to another cache")             \
    X(E_STATE, -3, CALLER, "the object's state does not allow this call")                          \
    X(E_TOO_LONG, -4, CALLER, "the sequence would exceed max_seq_tokens")                          \
    X(E_TOO_SMALL, -5, CALLER, "the caller's buffer or arena is too small")                        \
    X(E_NEVER, -6, CALLER, "more blocks than the pool, less the watermark in force, ever has")     \
    X(E_NO_BLOCKS, -7, RETRY, "not enough free or cached blocks now")                              \
    X(E_NO_SEQS, -8, RETRY, "all max_seqs sequences are open")                                     \
    X(E_NO_NAMESPACES, -9, RETRY, "all max_namespaces namespaces are open")                        \
    X(E_PLAN_FULL, -10, RETRY, "max_copies copies are pending: take the plan first")               \
    X(E_UNKNOWN, -11, DATA, "token values in the range are not known to the cache")                \
    X(E_FORMAT, -12, DATA, "the bytes are not what they should be")                                \
    X(E_VERSION, -13, DATA, "of another version: write it anew, or use the release that did")      \
    X(E_MISMATCH, -14, DATA, "the result differs from the recorded one")                           \
    X(E_NO_MEMORY, -15, SYSTEM, "the system gave no memory")                                       \
    X(E_IO, -16, SYSTEM, "reading or writing failed")                                              \
    X(E_BUSY, -17, CALLER, "another call is inside this cache, or another process has it")         \
    X(E_CORRUPT, -18, SYSTEM, "an invariant of the cache does not hold")                           \
    X(E_NO_STEPS, -19, RETRY, "max_steps_out steps are out: report one first")                     \
    X(E_IN_FLIGHT, -20, RETRY, "a step that is out still writes what must be copied")              \
    X(E_BEHIND, -21, DATA, "what is asked for is not remembered: take a snapshot of the events")   \
    X(E_DROPPED, -22, DATA, "tokens that a window has dropped would be needed")                    \
    X(E_AGAIN, -30, RETRY, "nothing can be taken or read at this moment: call again")              \
    X(E_PEER, -31, SYSTEM, "the peer is gone, or gave up")

#define KVP_STATUS_ENUM(name, number, class_, text) KVP_##name = (number),
typedef enum kvp_status { KVP_STATUS_TABLE(KVP_STATUS_ENUM) } kvp_status;
#undef KVP_STATUS_ENUM

/* Name the status, as in "KVP_E_NO_BLOCKS"; "KVP_E_?" for a number that is none.
 * Gives: a static string. Thread: pure. Cost: O(1). */
KVP_API const char *kvp_status_name(kvp_status status);

/* Explain the status in a few words. Gives: a static string. Thread: pure. Cost: O(1). */
KVP_API const char *kvp_status_text(kvp_status status);

/* Tell the status's class, KVP_CLASS_...; KVP_CLASS_SYSTEM for a number that is none.
 * Thread: pure. Cost: O(1). */
KVP_API int kvp_status_class(kvp_status status);

/* Give the library's version, "0.2.0". Compare with KVP_VERSION to detect a header of another
 * version. Gives: a static string. Thread: pure. */
KVP_API const char *kvp_version(void);

/* Why a check refused a struct (kvp_config_check and others): the first field that is wrong, in the
 * order of the checks. All zero if nothing is wrong. */
typedef struct kvp_why {
    char field[40]; /* as in "n_blocks" or "keys[3].end", cut when longer; "" when all is right */
    double value;   /* what it is, exact below 2^53; 0 when it is a pointer */
    double lowest;  /* lowest and highest value that this field may have beside the others; */
    double highest; /* both 0 when what is wrong is no range: `text` says what */
    char text[152]; /* "n_blocks is 1, expected 2 to 2^31-1" */
} kvp_why;

/* One cache. It lives in its arena; everything in it is found by indices. */
typedef struct kvp_cache kvp_cache;

/* Handles carry a generation and their cache's number: use after close, or on another cache, is
 * KVP_E_HANDLE in every build. A cache never gives a handle twice: a place is retired when its
 * generations are used up, after at least 100 million uses. Numbers of caches repeat after 65,535
 * caches of a process. All zero is never a valid handle. Handles differ from run to run of the
 * process, because the cache's number does; nothing else in the library does. */
typedef struct kvp_seq {
    uint64_t bits;
} kvp_seq;

typedef struct kvp_ns {
    uint64_t bits;
} kvp_ns;

/* The content hash of a node, canonical (big-endian XXH128) bytes: equal on every machine. */
typedef struct kvp_hash {
    uint8_t bytes[16];
} kvp_hash;

/* Tokens [begin, end) of a sequence. */
typedef struct kvp_range {
    uint32_t begin;
    uint32_t end;
} kvp_range;

/* What the layers of a group attend to: the query at position p sees keys 0 .. K - 1 and
 * p - R + 1 .. p. Both 0: all keys up to p (full attention). Else R >= 1. With KVP_CHUNKED for K
 * there are no sinks, and it sees keys floor(p / R) x R .. p (chunked-local attention).
 * windows.h. */
typedef struct kvp_window {
    uint32_t sink_tokens;   /* K: attention sinks; or KVP_CHUNKED */
    uint32_t recent_tokens; /* R, the query's own token included; or the tokens of a chunk */
} kvp_window;

/* As sink_tokens of a window: tokens attend within chunks of recent_tokens. */
#define KVP_CHUNKED UINT32_MAX

/* A layer group of a cache: its window, and its block size. windows.h. */
typedef struct kvp_group {
    uint32_t sink_tokens;   /* as in kvp_window */
    uint32_t recent_tokens; /* as in kvp_window; both 0: full attention */
    uint32_t block_tokens;  /* S of the group; 0: the cache's block_tokens */
} kvp_group;

/* One token's KV, to be moved: slots as in slot mappings. */
typedef struct kvp_slot_move {
    int64_t src;
    int64_t dst;
} kvp_slot_move;

/* An extra key: something besides token ids that the KV of tokens [begin, end) depends on. Examples
 * are an image's digest (type "image", the placeholder's range) and an adapter (type "adapter", the
 * first token it applies to). Every unit that [begin, end) touches includes the key in its identity
 * as (type, begin - first token of the unit, bytes). By the chain, so does every unit that follows.
 * The end within a unit is not part of the identity: keys of equal type and bytes must have equal
 * length. The caller chooses the numbers of types: keys of two types never compare equal. */
typedef struct kvp_key {
    uint32_t type;
    uint32_t begin;    /* position in the sequence, tokens */
    uint32_t end;      /* > begin */
    uint32_t n_bytes;  /* 0..KVP_KEY_MAX_BYTES; longer ones: pass a digest */
    const void *bytes; /* [n_bytes]; may be NULL when n_bytes is 0 */
} kvp_key;

/* Where the bytes of an operation log (recording.h) or a snapshot (snapshot.h) go. `write` is
 * called with pieces of them, during calls on the cache. It returns 0; anything else ends the
 * recording (the call itself is not affected) or the snapshot. It must not call the cache. */
typedef struct kvp_sink {
    void *context;
    int (*write)(void *context, const void *bytes, size_t n_bytes);
} kvp_sink;

#ifdef __cplusplus
}
#endif
#endif
