/* kvpager/trees.h: token trees. Draft tokens with a parent each, and the path that is accepted.
 *
 *   config.max_tree_tokens = 64;
 *   ...
 *   const int32_t tokens[] = {7, 8, 9, 5};
 *   const int32_t parents[] = {-1, 0, 0, 1};       7 -> 8 -> 5, and 7 -> 9
 *   kvp_seq_extend_tree(cache, &batch, parents);   slots for all four
 *   ... metadata with the mask, forward pass: the target model says 7, 8 ...
 *   kvp_seq_accept(cache, &accept);                leaf 1: tokens 7 and 8 are the sequence's now
 *
 * A sequence's tree stands behind its tokens. Node j has its KV in the slot of position tokens + j
 * (kvp_seq_slots), whatever its depth. Its position for the model is tokens + depth, where a root's
 * depth is 0. It sees the sequence's tokens and its own ancestors, as far as the window allows. A
 * parent is an earlier node, or -1: the sequence's last token. There may be several roots. Nodes
 * may be added in several rounds; parents then count over all of them.
 *
 * A tree is not part of the sequence: it is in no prefix, is never sealed, and is not copied to the
 * host or to a fork. While a sequence has a tree, extend takes no tokens (KVP_E_STATE); without
 * tokens it makes slots writable and reserves behind the tree. Commit and fill work on the tokens
 * before the tree. Copy-on-write copies the nodes' slots, too. Truncate (to any length),
 * invalidate, swap-out and close drop a tree silently, like reserved slots.
 *
 * Steps: the next step that begins (with ordered steps: that is ordered) after nodes were added
 * must compute them. With overlapped steps, a path can be accepted when the step of the last round
 * is over. Before that, accept is KVP_E_IN_FLIGHT. So is an extend that would copy an entry with
 * nodes while steps are out. kvp_step_failed drops the trees of sequences that it cuts. It also
 * drops every tree whose last round was added for that step or a later one, and reports those
 * sequences. If only the tree goes, its slots stay as reserve, and the sequence has lost no
 * computed token: compare computed_tokens before you compute anything again.
 */
#ifndef KVPAGER_TREES_H
#define KVPAGER_TREES_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Add nodes to the trees of one or more sequences. All or nothing.
 *
 * Afterwards the slots of all nodes, of tokens that are not computed, and of reserve_tokens behind
 * the trees are writable. Blocks are taken, copied on write or overwritten as by
 * kvp_seq_extend_many. Tokens before the tree may be without value. kvp_cache_can_extend answers
 * for this call, too: it counts new tokens behind the tree, and ignores max_tree_tokens.
 *
 * Takes:   batch        tokens: values of the new nodes, may be NULL only when there are none;
 *                       flags 0, no keys
 *          parents      [sum of n_tokens] index in the sequence's whole tree, or -1; may be NULL
 *                       when there are none
 * Returns: KVP_OK; as kvp_seq_extend_many; KVP_E_ARG also for a parent below -1 or not before its
 *          node; KVP_E_TOO_LONG also when a tree would have more than max_tree_tokens
 * After-failure: unchanged
 * Thread:  cache        Blocks: never
 * Cost:    O(nodes + blocks from the first uncomputed token on), allocates nothing
 */
KVP_API kvp_status kvp_seq_extend_tree(kvp_cache *cache, const kvp_batch *batch,
                                       const int32_t *parents);

/* What is accepted. Initialise it by name: {.struct_size = sizeof(kvp_accept), ...}. */
typedef struct kvp_accept {
    size_t struct_size;
    uint32_t n_seqs;     /* B */
    uint32_t max_moves;  /* capacity of moves for each group. The number of nodes accepted is always
                            enough. 0 is not a query: it is enough if no node moves */
    const kvp_seq *seqs; /* [B] each once, in any order, any of those that have trees */
    const int32_t *leaves; /* [B] the deepest node accepted, or -1: nothing */
    kvp_slot_move *moves;  /* [n_groups, max_moves] written; NULL: max_moves is 0 */
    uint32_t n_moves;      /* written, also on KVP_E_TOO_SMALL: how many there are in each group */
    uint32_t reserved;     /* 0 */
} kvp_accept;

/* Accept the path from a root to `leaf` of each sequence, and drop the rest of its tree.
 *
 * The tokens of the path become computed tokens of the sequence. Their KV must have been written,
 * or be ordered to be. Node number t of the path moves to the slot of position tokens + t. For
 * every group, moves lists the nodes whose slot differs, sequence after sequence, in the order of
 * the path (kvp_copier_move). The moves must run after the plan that was taken last, and before the
 * next plan and the next forward pass.
 *
 * Full units are sealed as by commit, and can be hit at once. Entries that windows do not keep are
 * dropped. Then the blocks behind ceil(tokens / S) are released, the last first, with reserved ones
 * (row_version rises by one if there were any). writable is at most the tokens then. A sequence
 * without a tree is left as it is, but must not be swapped out. With leaf -1 nothing else is
 * checked: a tree can be dropped while its step is out.
 *
 * Returns: KVP_OK; KVP_E_ARG: leaf below -1, or not in the tree; KVP_E_STATE: something is
 *          accepted, and tokens before the tree are not computed or have no value. Also when a copy
 *          into a block that nodes move from or to waits in the plan: take it first;
 *          KVP_E_IN_FLIGHT; KVP_E_TOO_SMALL (after everything else; only n_moves is written)
 * After-failure: unchanged
 * Thread:  cache        Blocks: never
 * Cost:    O(path + blocks released), allocates nothing
 */
KVP_API kvp_status kvp_seq_accept(kvp_cache *cache, kvp_accept *accept);

/* Read a sequence's tree.
 *
 * Takes:   capacity     of the arrays; 0 asks for the number only
 * Gives:   out_tokens, out_parents  [out_n_nodes]; each may be NULL; out_n_nodes is written also on
 *                       KVP_E_TOO_SMALL
 * Returns: KVP_OK; KVP_E_TOO_SMALL. Thread: read. Cost: O(nodes)
 */
KVP_API kvp_status kvp_seq_tree(const kvp_cache *cache, kvp_seq seq, int32_t *out_tokens,
                                int32_t *out_parents, uint32_t capacity, uint32_t *out_n_nodes);

#ifdef __cplusplus
}
#endif
#endif
