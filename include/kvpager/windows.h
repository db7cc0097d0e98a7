/* kvpager/windows.h: layer groups and sliding windows.
 *
 *   config.n_groups = 3;
 *   config.groups[0] = (kvp_group){0, 0, 0};         layers with full attention
 *   config.groups[1] = (kvp_group){4, 1024, 64};     4 sinks and a window of 1,024; blocks of 64
 *   config.groups[2] = (kvp_group){KVP_CHUNKED, 8192, 0};   layers that attend in chunks of 8,192
 *   ...
 *   kvp_seq_row(cache, seq, 1, &row, &n);          a row for each group; 0: dropped
 *   kvp_seq_window(cache, seq, 0, window, NULL);   this sequence alone slides, from now on
 *
 * A layer group is the layers that keep the same tokens. A sequence has one row for each group.
 * Entry i of a row holds the KV of tokens i x S .. (i + 1) x S - 1 in the layers of that group. S
 * is groups[g].block_tokens, a multiple of unit_tokens; 0 is the cache's block_tokens. All groups
 * take their blocks from one pool, so a block has the same bytes for each of them (a memory layout
 * says how): layers with half the bytes a token are a group with twice the S. A node has at most
 * one attached block for each group and tier. One group without a window is the default.
 *
 * What cache.h, swap.h and steps.h say of a row entry, a block, a hit or an attached unit holds for
 * each group, with its S. Work on entries goes in the order of their first tokens, and for entries
 * of one token in the order of the groups. Work from the last entry down goes the other way. Units
 * are sealed and withdrawn one by one, each in the order of the groups. Counts of blocks, and of
 * units sealed, detached, adopted or duplicate, are of all groups. Units that are private or not
 * kept count once. kvp_seq_info.n_blocks and kvp_seq_block_tokens are of group 0's row.
 *
 * A group has a window: K sinks and R recent tokens. The query at position p sees keys 0 .. K - 1
 * and p - R + 1 .. p. The window is the group's in the configuration, until kvp_seq_window gives
 * the sequence another. (Porting from TVM: a window of W there, K of it sinks, is R = W - K + 1
 * here. Its cache keeps W tokens from one step to the next, and the next query sees all of them and
 * itself.) With q the position of the next query, the cache keeps
 *
 *   entry i     when i x S < K, or (i + 1) x S > q + 1 - R
 *
 *                 K = 3, R = 6, S = 4, q = 17: queries from 17 on see 0..2 and 12..
 *     tokens     0..3   4..7   8..11  12..15  16..
 *     row         7      0      0       4      9        entries 1 and 2 are dropped
 *
 * Chunks. With KVP_CHUNKED for K, R is the length of a chunk: the query at position p sees keys
 * floor(p / R) x R .. p (chunked-local attention, Llama 4). There are no sinks, and
 *
 *   entry i     is kept when (i + 1) x S > floor(q / R) x R
 *
 *                 R = 6, S = 4, q = 17: queries from 17 on see 12..17, and later chunks
 *     row         0      0      0       4      9        at q = 18, entry 3 is dropped, too
 *
 * So the entries of a chunk are dropped when the last of its tokens is computed, and a hit that
 * ends at the end of a chunk needs nothing of the group. R need not be a multiple of S. All that
 * follows holds for chunks with K = 0.
 *
 *   Dropped     An entry that is not kept, with q = the tokens computed, is dropped when commit
 *               raises that number. Setting a window also drops entries, with q at most tokens - 1,
 *               because the last token of a prompt that was hit whole runs again; what lies before
 *               a dropped entry, and is no sink, goes too. A dropped entry becomes null (block 0)
 *               and its block is released, the last entry first; row_version rises by one. Sealed
 *               content stays cached, and may be hit. Steps that are out park the block as usual.
 *               So make a step's metadata before its commit.
 *   Room        A token needs a slot while its step runs, even if it is out of the window when the
 *               step ends: extend and open take blocks for all new tokens. Open a long prompt in
 *               part (kvp_cache_match tells how much is cached), and extend it in chunks.
 *   Needed      Fork, truncate, and each call that computes more need all entries that are kept at
 *               that place. fork(at) uses q = at for the child, truncate(n) uses q = min(computed,
 *               n), and other calls q = computed. If one was dropped, the call is KVP_E_DROPPED and
 *               changes nothing. A fork has the windows of its parent, and only the row entries
 *               that it keeps (stats.dropped_blocks counts neither these, nor entries that a hit
 *               leaves null). After an invalidation or a failed step, a sequence may need what was
 *               dropped. Then it cannot be extended or be part of a step (KVP_E_DROPPED): close it,
 *               or truncate it to where it can. What was computed behind work that failed must not
 *               be committed, even if a window hides that work from it.
 *   KVP_E_NEVER counts the entries that are not null, of all groups.
 *
 * Match. A hit is a prefix for which every group has what it keeps. Nodes are matched for as long
 * as they are found. Of the prefixes of that path, of any number of units, the longest is taken for
 * which each group has a block of either tier for every unit in the entries that it keeps. Here q
 * is the prefix's tokens, but at most n_tokens - 1. With one group without a window this is the
 * rule of cache.h. Else
 *
 *   inside a block       Every group keeps an entry that the prefix ends inside of. It copies the
 *                        hit_tokens % S leading slots of it into a block that is taken, in the
 *                        order of entries. A window does so, too, if it sees only the last of
 *                        them: a block that has a unit has all units of its entry before it. Each
 *                        source that is a cached device block counts in kvp_cache_can_open. If
 *                        they and the blocks to take do not fit together, the hit is the longest
 *                        prefix of whole blocks of every group (KVP_STOP_NO_ROOM). These sources
 *                        go to the tail of their queue from the last group to the first, then
 *                        whole blocks of the host. info.copied_tokens is of the group with the
 *                        most to copy. info.host_tokens counts a token once, if any group copies
 *                        it from the host.
 *   KVP_FULL_HIT_RECOMPUTE  the prefix ends at the last end of a block, of any group, before the
 *                        last token, or before it
 *   no room              a prefix with more than max_copies - 1 whole blocks on the host, or more
 *                        than max_copies copies in all, is passed over
 *   stop                 KVP_STOP_NO_ROOM, when a longer one was passed over for that; else
 *                        KVP_STOP_FULL_HIT, when all n_tokens were there and must not be hit; else
 *                        KVP_STOP_NO_KV, when the prefix is shorter than the path: stop_group is
 *                        the first group without a window that lacks something for one unit more,
 *                        else the first one with a window; else why the path ended
 *
 * Row entries of the prefix that a group does not keep are null from the start.
 *
 * Received. With KVP_OPEN_RECEIVE the rows are as if all tokens but the last were computed: entries
 * that are not kept with q = n_tokens - 1 are null, hit or not, and no block is held, copied or
 * taken for them. The match is not different. Until the caller commits that many tokens, which have
 * come from another process (transfer.h) or a store, the sequence lacks what its next query would
 * need, and cannot be extended or be part of a step (KVP_E_DROPPED). A commit is refused, too,
 * while a window keeps, with q = the tokens then computed, what is null. It seals, in each group,
 * the units whose entries are there.
 *
 * Retained places. A hit that ends at e needs, of a windowed group, only blocks with tokens that
 * the query at e sees. Few places are hit, but all blocks that leave windows stay cached alike, and
 * take the memory of others. With config.retain_tokens, a block of a group whose configuration has
 * a window goes to the head of its class's queue, not to the tail, when the window drops it and it
 * becomes cached, unless a hit that ends at one of the sequence's retained places needs it:
 *
 *   multiples    of retain_tokens; none with KVP_RETAIN_PROMPTS
 *   the end      of the prompt of n tokens: the last multiple of U up to n, for longer prompts, and
 *                the one up to n - 1, for the same prompt. Of a prompt that is opened in part, tell
 *                its end (kvp_seq_prompt_end, policy.h) before the commit behind it.
 *   the hit      where that of its open ended; of a whole prompt, the unit before
 *   the parting  where the first unit begins that the sequence was the first to have
 *
 *                 U = S = 4, R = 6, KVP_RETAIN_PROMPTS, a prompt of 26 tokens: both ends are 24
 *     tokens     0..3   4..7   8..11  12..15  16..19  20..23  24..27   a hit at 24 sees 19..23
 *     dropped    head   head   head   head    tail    tail    head
 *
 *   head         It can be hit until it is evicted, and is not kept on the host then.
 *   order        When rows are released (close, truncate), cached blocks that the places need go to
 *                the tail among those of the row, in its order: a place is lost with the full
 *                groups' blocks before it, not earlier.
 *   others       The last sequence that drops a block decides, by its own places. A fork has those
 *                of its parent.
 *   Cost         O(1) a block dropped, and a null entry released; 4 bytes a sequence
 *
 * A sequence's own window changes the KV of what it computes. A token that cannot see what others
 * see does not have the same KV as theirs. So the units of the sequence are private from the first
 * such position on: max(computed, the smaller of K + R of the two windows), where a full window
 * counts as infinite. `computed` is the value when the window was set, or a lower one to which the
 * sequence, or a fork of it, was taken back while it had such a window. Setting the group's window
 * again does not undo this: only tokens before that position, taken back and computed again from
 * then on, have the KV that others have, and are public. A private unit belongs to one sequence: if
 * others invalidate theirs, the sequence is not reported for it. (A sequence also does not know who
 * shares an entry that it has dropped, except by the first withdrawn unit.)
 */
#ifndef KVPAGER_WINDOWS_H
#define KVPAGER_WINDOWS_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Give the sequence its own window in one group, at any time; {0, 0}: none.
 *
 * Entries that the window does not keep are dropped at once. It may be wider or narrower than the
 * one before, or full, as long as what it keeps is still there. Positions stay absolute.
 *
 * Takes:   group        < n_groups
 *          window       recent_tokens 0 only with sink_tokens 0
 * Gives:   out_released may be NULL
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE: swapped out; KVP_E_DROPPED: it would keep, with q = the
 *          tokens computed, an entry that was dropped
 * After-failure: unchanged
 * Thread:  cache. Cost: O(entries that the group has dropped)
 */
KVP_API kvp_status kvp_seq_window(kvp_cache *cache, kvp_seq seq, uint32_t group, kvp_window window,
                                  kvp_released *out_released);

typedef struct kvp_window_info {
    kvp_window window;      /* in force */
    uint32_t dropped_begin; /* row entries [begin, end) are null; 0, 0: none are */
    uint32_t dropped_end;
} kvp_window_info;

/* Read a sequence's window in one group, and what it has dropped.
 * Returns: KVP_OK; KVP_E_ARG: no such group. Thread: read. Cost: O(1) */
KVP_API kvp_status kvp_seq_window_get(const kvp_cache *cache, kvp_seq seq, uint32_t group,
                                      kvp_window_info *out_info);

#ifdef __cplusplus
}
#endif
#endif
