/* frozen: structs that never change in a minor version, because programs have arrays of them, or
 * hold them inside other structs. Their sizes and the place of each field, on machines with 64-bit
 * pointers. A change here is one for the next minor version: docs/ABI.md.
 */
#include <kvpager/attention.h>
#include <kvpager/inspect.h>
#include <kvpager/kvpager.h>
#include <kvpager/memory.h>
#include <kvpager/meta.h>
#include <kvpager/oplog.h>
#include <kvpager/sched.h>
#include <kvpager/snapshot.h>
#include <kvpager/spill.h>
#include <kvpager/store.h>
#include <kvpager/transfer.h>
#include <kvpager/wire.h>

#define SIZE(type, size)       _Static_assert(sizeof(type) == (size), #type " is frozen")
#define AT(type, field, place) _Static_assert(offsetof(type, field) == (place), #type " is frozen")

SIZE(kvp_hash, 16); /* everywhere */

#if UINTPTR_MAX == UINT64_MAX

/* seq */
SIZE(kvp_seq, 8);
AT(kvp_seq, bits, 0);

/* ns */
SIZE(kvp_ns, 8);
AT(kvp_ns, bits, 0);

/* hash */
SIZE(kvp_hash, 16);
AT(kvp_hash, bytes, 0);

/* range */
SIZE(kvp_range, 8);
AT(kvp_range, begin, 0);
AT(kvp_range, end, 4);

/* window */
SIZE(kvp_window, 8);
AT(kvp_window, sink_tokens, 0);
AT(kvp_window, recent_tokens, 4);

/* digest */
SIZE(kvp_digest, 32);
AT(kvp_digest, bytes, 0);

/* slice */
SIZE(kvp_slice, 16);
AT(kvp_slice, first_layer, 0);
AT(kvp_slice, n_layers, 4);
AT(kvp_slice, first_head, 8);
AT(kvp_slice, n_heads, 12);

/* identity */
SIZE(kvp_identity, 160);
AT(kvp_identity, kind, 0);
AT(kvp_identity, group, 4);
AT(kvp_identity, slice, 8);
AT(kvp_identity, fingerprint, 24);
AT(kvp_identity, digest, 56);
AT(kvp_identity, parent, 88);
AT(kvp_identity, space, 120);
AT(kvp_identity, position, 128);
AT(kvp_identity, block_tokens, 132);
AT(kvp_identity, n_blocks, 136);
AT(kvp_identity, n_keys, 140);
AT(kvp_identity, tokens, 144);
AT(kvp_identity, keys, 152);

/* store_done */
SIZE(kvp_store_done, 16);
AT(kvp_store_done, tag, 0);
AT(kvp_store_done, op, 8);
AT(kvp_store_done, result, 12);

/* store_match */
SIZE(kvp_store_match, 24);
AT(kvp_store_match, written_before, 0);
AT(kvp_store_match, space, 8);
AT(kvp_store_match, one_space, 16);
AT(kvp_store_match, reserved, 20);

/* store_cleaned */
SIZE(kvp_store_cleaned, 40);
AT(kvp_store_cleaned, directories, 0);
AT(kvp_store_cleaned, in_use, 8);
AT(kvp_store_cleaned, unknown, 16);
AT(kvp_store_cleaned, records, 24);
AT(kvp_store_cleaned, bytes, 32);

/* spill_host */
SIZE(kvp_spill_host, 16);
AT(kvp_spill_host, base, 0);
AT(kvp_spill_host, stride, 8);

/* spill_answer */
SIZE(kvp_spill_answer, 32);
AT(kvp_spill_answer, tag, 0);
AT(kvp_spill_answer, waited_ns, 8);
AT(kvp_spill_answer, outcome, 16);
AT(kvp_spill_answer, hit_tokens, 20);
AT(kvp_spill_answer, more_tokens, 24);
AT(kvp_spill_answer, reserved, 28);

/* slot_move */
SIZE(kvp_slot_move, 16);
AT(kvp_slot_move, src, 0);
AT(kvp_slot_move, dst, 8);

/* key */
SIZE(kvp_key, 24);
AT(kvp_key, type, 0);
AT(kvp_key, begin, 4);
AT(kvp_key, end, 8);
AT(kvp_key, n_bytes, 12);
AT(kvp_key, bytes, 16);

/* sink */
SIZE(kvp_sink, 16);
AT(kvp_sink, context, 0);
AT(kvp_sink, write, 8);

/* copy */
SIZE(kvp_copy, 20);
AT(kvp_copy, phase, 0);
AT(kvp_copy, group, 4);
AT(kvp_copy, src_tier, 6);
AT(kvp_copy, dst_tier, 7);
AT(kvp_copy, src_block, 8);
AT(kvp_copy, dst_block, 12);
AT(kvp_copy, n_tokens, 16);

/* evicted */
SIZE(kvp_evicted, 24);
AT(kvp_evicted, hash, 0);
AT(kvp_evicted, block, 16);
AT(kvp_evicted, tier, 20);
AT(kvp_evicted, kept, 21);
AT(kvp_evicted, group, 22);

/* event */
SIZE(kvp_event, 80);
AT(kvp_event, number, 0);
AT(kvp_event, kind, 8);
AT(kvp_event, tier, 12);
AT(kvp_event, hash, 16);
AT(kvp_event, parent, 32);
AT(kvp_event, root, 48);
AT(kvp_event, position, 64);
AT(kvp_event, n_tokens, 68);
AT(kvp_event, group, 72);
AT(kvp_event, reserved, 76);

/* released */
SIZE(kvp_released, 8);
AT(kvp_released, freed_blocks, 0);
AT(kvp_released, cached_blocks, 4);

/* violation */
SIZE(kvp_violation, 24);
AT(kvp_violation, invariant, 0);
AT(kvp_violation, object, 8);
AT(kvp_violation, detail, 16);

/* swapped */
SIZE(kvp_swapped, 16);
AT(kvp_swapped, copied_blocks, 0);
AT(kvp_swapped, found_blocks, 4);
AT(kvp_swapped, released, 8);

/* window_info */
SIZE(kvp_window_info, 16);
AT(kvp_window_info, window, 0);
AT(kvp_window_info, dropped_begin, 8);
AT(kvp_window_info, dropped_end, 12);

/* hash_input */
SIZE(kvp_hash_input, 32);
AT(kvp_hash_input, unit_tokens, 0);
AT(kvp_hash_input, n_tokens, 4);
AT(kvp_hash_input, tokens, 8);
AT(kvp_hash_input, first_position, 16);
AT(kvp_hash_input, n_keys, 20);
AT(kvp_hash_input, keys, 24);

/* source */
SIZE(kvp_source, 16);
AT(kvp_source, context, 0);
AT(kvp_source, read, 8);

/* snapshot_block */
SIZE(kvp_snapshot_block, 16);
AT(kvp_snapshot_block, tier, 0);
AT(kvp_snapshot_block, group, 4);
AT(kvp_snapshot_block, block, 8);
AT(kvp_snapshot_block, n_tokens, 12);

/* arena_source */
SIZE(kvp_arena_source, 24);
AT(kvp_arena_source, context, 0);
AT(kvp_arena_source, n_bytes, 8);
AT(kvp_arena_source, read, 16);

/* request */
SIZE(kvp_request, 8);
AT(kvp_request, bits, 0);

/* step_seq */
SIZE(kvp_step_seq, 32);
AT(kvp_step_seq, seq, 0);
AT(kvp_step_seq, request, 8);
AT(kvp_step_seq, sample, 16);
AT(kvp_step_seq, begin, 20);
AT(kvp_step_seq, n_tokens, 24);
AT(kvp_step_seq, n_sampled, 28);

/* ended */
SIZE(kvp_ended, 40);
AT(kvp_ended, request, 0);
AT(kvp_ended, tag, 8);
AT(kvp_ended, sample, 16);
AT(kvp_ended, reason, 20);
AT(kvp_ended, status, 24);
AT(kvp_ended, new_tokens, 28);
AT(kvp_ended, is_last, 32);

/* sched_limit */
SIZE(kvp_sched_limit, 8);
AT(kvp_sched_limit, max_prompt_tokens, 0);
AT(kvp_sched_limit, max_tokens, 4);

/* wire_item */
SIZE(kvp_wire_item, 32);
AT(kvp_wire_item, seq, 0);
AT(kvp_wire_item, worker_id, 8);
AT(kvp_wire_item, status, 12);
AT(kvp_wire_item, step_tokens, 16);
AT(kvp_wire_item, first_token, 20);
AT(kvp_wire_item, tokens, 24);

/* wire_head */
SIZE(kvp_wire_head, 24);
AT(kvp_wire_head, epoch, 0);
AT(kvp_wire_head, number, 8);
AT(kvp_wire_head, full, 16);
AT(kvp_wire_head, n_bytes, 20);

/* wire_news_item */
SIZE(kvp_wire_news_item, 32);
AT(kvp_wire_news_item, worker_id, 0);
AT(kvp_wire_news_item, is_new, 4);
AT(kvp_wire_news_item, from, 8);
AT(kvp_wire_news_item, n_values, 12);
AT(kvp_wire_news_item, values, 16);
AT(kvp_wire_news_item, from_node, 24);
AT(kvp_wire_news_item, reserved, 28);

/* meta_sizes */
SIZE(kvp_meta_sizes, 32);
AT(kvp_meta_sizes, n_seqs, 0);
AT(kvp_meta_sizes, n_tokens, 4);
AT(kvp_meta_sizes, n_entries, 8);
AT(kvp_meta_sizes, max_blocks, 12);
AT(kvp_meta_sizes, n_kept, 16);
AT(kvp_meta_sizes, n_nodes, 20);
AT(kvp_meta_sizes, n_mask_bytes, 24);

/* meta_level */
SIZE(kvp_meta_level, 40);
AT(kvp_meta_level, qo_indptr, 0);
AT(kvp_meta_level, kv_indptr, 8);
AT(kvp_meta_level, kv_indices, 16);
AT(kvp_meta_level, last_block_len, 24);
AT(kvp_meta_level, n_groups, 32);
AT(kvp_meta_level, n_entries, 36);

/* part */
SIZE(kvp_part, 72);
AT(kvp_part, size, 0);
AT(kvp_part, run, 4);
AT(kvp_part, tensor, 8);
AT(kvp_part, tensor_step, 12);
AT(kvp_part, tensor_bytes, 16);
AT(kvp_part, offset, 24);
AT(kvp_part, layer_stride, 32);
AT(kvp_part, block_stride, 40);
AT(kvp_part, token_stride, 48);
AT(kvp_part, head_stride, 56);
AT(kvp_part, run_stride, 64);

/* slice */
SIZE(kvp_slice, 16);
AT(kvp_slice, first_layer, 0);
AT(kvp_slice, n_layers, 4);
AT(kvp_slice, first_head, 8);
AT(kvp_slice, n_heads, 12);

/* layer_part */
SIZE(kvp_layer_part, 72);
AT(kvp_layer_part, base, 0);
AT(kvp_layer_part, block_stride, 8);
AT(kvp_layer_part, token_stride, 16);
AT(kvp_layer_part, head_stride, 24);
AT(kvp_layer_part, run_stride, 32);
AT(kvp_layer_part, size, 40);
AT(kvp_layer_part, run, 44);
AT(kvp_layer_part, scales, 48);
AT(kvp_layer_part, scale_block_stride, 56);
AT(kvp_layer_part, scale_head_stride, 64);

/* layer */
SIZE(kvp_layer, 160);
AT(kvp_layer, type, 0);
AT(kvp_layer, n_blocks, 4);
AT(kvp_layer, block_tokens, 8);
AT(kvp_layer, n_heads, 12);
AT(kvp_layer, k, 16);
AT(kvp_layer, v, 88);

/* gather */
SIZE(kvp_gather, 24);
AT(kvp_gather, row, 0);
AT(kvp_gather, n_row, 8);
AT(kvp_gather, layer, 12);
AT(kvp_gather, begin, 16);
AT(kvp_gather, n_tokens, 20);

/* slot_run */
SIZE(kvp_slot_run, 16);
AT(kvp_slot_run, slot, 0);
AT(kvp_slot_run, n_tokens, 8);

/* rope */
SIZE(kvp_rope, 104);
AT(kvp_rope, struct_size, 0);
AT(kvp_rope, mode, 8);
AT(kvp_rope, pairing, 12);
AT(kvp_rope, scaling, 16);
AT(kvp_rope, first_dim, 20);
AT(kvp_rope, n_dims, 24);
AT(kvp_rope, original_tokens, 28);
AT(kvp_rope, theta, 32);
AT(kvp_rope, factor, 40);
AT(kvp_rope, low_freq_factor, 48);
AT(kvp_rope, high_freq_factor, 56);
AT(kvp_rope, beta_fast, 64);
AT(kvp_rope, beta_slow, 72);
AT(kvp_rope, yarn_exact, 80);
AT(kvp_rope, reserved, 84);
AT(kvp_rope, magnitude, 88);
AT(kvp_rope, frequencies, 96);

/* rows */
SIZE(kvp_rows, 24);
AT(kvp_rows, data, 0);
AT(kvp_rows, token_stride, 8);
AT(kvp_rows, head_stride, 16);

/* rows_out */
SIZE(kvp_rows_out, 24);
AT(kvp_rows_out, data, 0);
AT(kvp_rows_out, token_stride, 8);
AT(kvp_rows_out, head_stride, 16);

/* attn_level */
SIZE(kvp_attn_level, 56);
AT(kvp_attn_level, n_rows, 0);
AT(kvp_attn_level, n_blocks, 4);
AT(kvp_attn_level, blocks, 8);
AT(kvp_attn_level, row_stride, 16);
AT(kvp_attn_level, lengths, 24);
AT(kvp_attn_level, row_start, 32);
AT(kvp_attn_level, last_len, 40);
AT(kvp_attn_level, query_start, 48);

/* attn_window */
SIZE(kvp_attn_window, 56);
AT(kvp_attn_window, sink_tokens, 0);
AT(kvp_attn_window, recent_tokens, 4);
AT(kvp_attn_window, sinks, 8);
AT(kvp_attn_window, recent, 16);
AT(kvp_attn_window, sink_len, 24);
AT(kvp_attn_window, window_offset, 32);
AT(kvp_attn_window, key_offset, 40);
AT(kvp_attn_window, query_positions, 48);

/* attn_tree */
SIZE(kvp_attn_tree, 40);
AT(kvp_attn_tree, start, 0);
AT(kvp_attn_tree, intervals, 8);
AT(kvp_attn_tree, bits, 16);
AT(kvp_attn_tree, bits_start, 24);
AT(kvp_attn_tree, n_tokens, 32);
AT(kvp_attn_tree, n_bytes, 36);

/* partial */
SIZE(kvp_partial, 48);
AT(kvp_partial, out, 0);
AT(kvp_partial, lse, 24);

/* why */
SIZE(kvp_why, 216);
AT(kvp_why, field, 0);
AT(kvp_why, value, 40);
AT(kvp_why, lowest, 48);
AT(kvp_why, highest, 56);
AT(kvp_why, text, 64);

/* Rooms for structs that grow inside others. */
AT(kvp_arena_report, stats, 512);
AT(kvp_arena_report, arena_bytes, 1536);
AT(kvp_outcome, n, 1048);
#endif
