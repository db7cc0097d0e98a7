/* kvpager/events.h: what is stored where. For routers and other programs that keep a view of the
 * cache.
 *
 *   config.max_events = 65536;
 *   ...
 *   for (;;) {
 *       status = kvp_events_read(cache, next, events, 256, tokens, &n);
 *       if (status == KVP_E_BEHIND) { ... kvp_events_snapshot ... next = number + 1 ... }
 *       else next += n;
 *   }
 *
 * Events describe the set of (hash, tier, group) whose KV can be found. STORED adds one, REMOVED
 * removes one, CLEARED removes all of a namespace, or all there are. A reader that applies them in
 * order to an empty set, or to a snapshot, has that set. They are numbered 1, 2, ... without gaps,
 * and the newest max_events are remembered. Reading takes nothing away, so each of any number of
 * readers keeps its own place.
 *
 * A unit is stored when its node gets its first block in the tier (and group), and removed when its
 * last block goes. What a flush (or the last kvp_ns_close) makes unreachable is CLEARED; its later
 * eviction is no event. After an invalidation, units behind a withdrawn one are unreachable. They
 * stay in the set until they are evicted (a hit always begins at the root, and ends before them).
 * Equal hashes are one element: there is no event while another node under a live root with the
 * same hash has the tier. (If callers give wrong hashes, the view is wrong; hits never are.)
 */
#ifndef KVPAGER_EVENTS_H
#define KVPAGER_EVENTS_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KVP_EVENT_STORED = 1,
    KVP_EVENT_REMOVED = 2,
    KVP_EVENT_CLEARED = 3 /* hash: the namespace's root hash: what was stored with this root goes;
                             zero: everything (reset) */
};

typedef struct kvp_event {
    uint64_t number;
    uint32_t kind;     /* KVP_EVENT_... */
    uint32_t tier;     /* KVP_DEVICE, KVP_HOST; CLEARED: 0, of both */
    kvp_hash hash;     /* of the unit */
    kvp_hash parent;   /* STORED: of the unit before, or of the root; else zero */
    kvp_hash root;     /* STORED: the namespace's root hash (kvp_hash_root); else zero */
    uint32_t position; /* STORED: of the unit's first token; else 0 */
    uint32_t n_tokens; /* STORED: U; else 0. Its tokens are at index x U of out_tokens */
    uint32_t group;    /* layer group; CLEARED: 0, of all */
    uint32_t reserved; /* 0 */
} kvp_event;

/* Read events from number `from` on.
 *
 * Beside a running call, events that the call has made so far may be among them. Each event is
 * whole, and so are its tokens. If the writer overtakes the read, the call tries again, 8 times at
 * most.
 *
 * Takes:   from         1 + the number of the last event that was read; 1 at first
 *          capacity     of out_events; 0: no events are read. out_tokens has room for capacity x U,
 *                       or is NULL: no tokens
 * Gives:   out_events, out_tokens  [out_n_events]; 0 when there is nothing new
 * Returns: KVP_OK; KVP_E_BEHIND: event `from` is not remembered any more; KVP_E_AGAIN: it was being
 *          overwritten each time; KVP_E_ARG: from is 0, or more than one beyond the newest;
 *          KVP_E_STATE: max_events is 0
 * After-failure: beside a running call, KVP_E_BEHIND and KVP_E_AGAIN leave anything in out_events
 *          and out_tokens
 * Thread:  any. Not recorded. Cost: O(events read x U)
 */
KVP_API kvp_status kvp_events_read(const kvp_cache *cache, uint64_t from, kvp_event *out_events,
                                   uint32_t capacity, int32_t *out_tokens, uint32_t *out_n_events);

/* List the whole set as STORED events, ancestors before descendants. All have the number of the
 * newest event. Continue with kvp_events_read from the number after it.
 *
 * Takes:   capacity     of out_events; out_tokens as above. 0 asks for the number of events only
 * Gives:   out_number   also on KVP_E_TOO_SMALL and with capacity 0, as out_n_events
 * Returns: KVP_OK; KVP_E_TOO_SMALL; KVP_E_STATE: max_events is 0
 * Thread:  cache (uses scratch memory; changes nothing). Cost: O(nodes x depth) at worst
 */
KVP_API kvp_status kvp_events_snapshot(kvp_cache *cache, kvp_event *out_events, uint32_t capacity,
                                       int32_t *out_tokens, uint32_t *out_n_events,
                                       uint64_t *out_number);

#ifdef __cplusplus
}
#endif
#endif
