/* The audit, of recurrent state: broken by hand, it is seen and named. See test_cache_check.c. */
#include <stdlib.h>

#include <kvpager/states.h>
#include <kvpager/steps.h>
#include <kvpager/swap.h>

#include "groups.h"
#include "planted.h"

#include "core/cache/audit.h"
#include "core/cache/state.h"
#include "core/cache/states.h"

/* A sequence of 9 tokens in units of 4, of which 8 are computed, with a checkpoint after 4. It
 * reads one slot and writes another. */
struct scene {
    world w;
    kvp_cache *cache;
    struct kvpi_seq *seq;
    struct kvpi_state *state;
    uint32_t nodes[2];
    uint32_t kept; /* the slot of the checkpoint */
};

static void make_scene_of(struct scene *scene, uint32_t quotas)
{
    kvp_config config = config_of(4, 4, 8);
    config.quotas = quotas;
    config.max_namespaces = 2;
    config.state_slots = 6;
    config.host_blocks = 6;
    config.host_state_slots = 3;
    scene->w = make_world(&config);
    const kvp_seq seq = open_seq(&scene->w, ints(0), 9, NULL);
    assert_ok(kvp_seq_commit(scene->w.cache, seq, 4));
    uint32_t outcome;
    assert_ok(kvp_seq_checkpoint(scene->w.cache, seq, &outcome));
    assert_int_equal(outcome, KVP_CHECKPOINT_MADE);
    assert_ok(kvp_seq_commit(scene->w.cache, seq, 8));
    scene->cache = scene->w.cache;
    scene->seq = kvpi_find_seq(scene->cache, seq);
    scene->state = kvpi_states_of(scene->cache, scene->seq);
    const uint32_t *row =
        kvpi_row_nodes(&scene->cache->table, kvpi_seq_place(&scene->cache->table, scene->seq));
    scene->nodes[0] = row[0];
    scene->nodes[1] = row[1];
    scene->kept = kvpi_checkpoint_of(scene->cache, row[0]);
    assert_int_not_equal(scene->kept, 0);
    assert_int_not_equal(scene->state->write, 0);
}

static void make_scene(struct scene *scene)
{
    make_scene_of(scene, 0);
}

static void make_scene_with_quotas(struct scene *scene)
{
    make_scene_of(scene, 1);
}

static struct kvpi_place *checkpoint_at(const struct scene *s, uint32_t i)
{
    return kvpi_node_at(&s->cache->prefix, s->nodes[i], kvpi_states_where(s->cache));
}

/* ------------------------------------------------------------------------------ what is planted */

PLANT(s2_no_such_slot, "S2 a sequence's slot is none", 3, s->state->read = 6);
PLANT(s2_no_such_slot_to_write, "S2 a sequence's slot is none", 3, s->state->write = 6);
PLANT(s1_a_checkpoint_is_written, "S1 a slot that is written is shared, or a checkpoint", 3,
      kvpi_block(&s->cache->states.pool, s->state->write)->content = s->nodes[1]);

PLANTED(s1_a_shared_slot_is_written, "S1 a slot that is written is shared, or a checkpoint", 3)
{
    kvp_seq child;
    const kvp_seq seq = kvpi_table_handle(&s->cache->table, s->seq, s->cache->recorder.cache_bits);
    assert_ok(kvp_seq_fork(s->cache, seq, 4, 0, &child));
    kvpi_states_of(s->cache, kvpi_find_seq(s->cache, child))->write = s->state->write;
    kvpi_block(&s->cache->states.pool, s->state->write)->refs++;
}

PLANT(s2_reads_nothing, "S2 a sequence reads a slot without need, or lacks it", 3,
      s->state->read = 0);
PLANT(s3_lost_and_written, "S3 slots are writable, and there is no slot of state to write", 3,
      s->state->read = 0, s->state->lost = 1);
PLANT(s3_nothing_to_write, "S3 slots are writable, and there is no slot of state to write", 3,
      s->state->write = 0);
PLANT(s4_of_another_node, "S4 a slot's node has another checkpoint", 3,
      kvpi_block(&s->cache->states.pool, s->kept)->content = s->nodes[1]);
PLANT(s4_duplicates, "S4 a checkpoint has duplicates", 3, checkpoint_at(s, 0)->dups = 1);
PLANT(s4_no_content, "S4 a node's checkpoint is no slot's content", 3,
      checkpoint_at(s, 1)->block = s->kept);
PLANT(s5_miscounted, "S5 the checkpoints below a node are miscounted", 3,
      ++*kvpi_node_below(&s->cache->prefix, s->nodes[0]));

/* The sequence is on the host. */
static void make_swapped_scene(struct scene *scene)
{
    make_scene(scene);
    const kvp_seq seq =
        kvpi_table_handle(&scene->cache->table, scene->seq, scene->cache->recorder.cache_bits);
    assert_ok(kvp_seq_swap_out(scene->cache, &seq, 1, NULL));
}

PLANT_IN(make_swapped_scene, s6_writes_on_the_host, "S6 a sequence on the host writes a slot", 3,
         s->state->write = s->state->read);
PLANT_IN(make_swapped_scene, s6_reads_a_checkpoint_there, "S6 a sequence on the host writes a slot",
         3, kvpi_block(&s->cache->states.host, s->state->read)->content = s->nodes[0]);
PLANT_IN(make_swapped_scene, t1_one_holder_more_there,
         "T1 a reference count is not the number of holders", 3,
         kvpi_block(&s->cache->states.host, s->state->read)->refs++);
PLANT_IN(make_swapped_scene, b2_one_free_slot_more_there,
         "B2 the counts do not sum to the number of slots", 1, s->cache->states.host.n_free++);

/* Counted for the namespace "other" by both sides, but held by a sequence of another one. */
static void give_away(struct scene *s, uint32_t slot)
{
    struct kvpi_quotas *quotas = &s->cache->states.pool.quotas;
    kvp_ns other;
    assert_ok(kvp_ns_open(s->cache, "other", 5, &other));
    kvpi_quotas_find(quotas, kvpi_owned(quotas, slot)->owner)->n_blocks--;
    kvpi_quotas_find(quotas, other.bits)->n_blocks++;
    kvpi_owned(quotas, slot)->owner = other.bits;
}

PLANT_IN(make_scene_with_quotas, q1_reads_anothers_slot, "Q1 a slot counts for another namespace",
         3, give_away(s, s->state->read));
PLANT_IN(make_scene_with_quotas, q1_writes_anothers_slot, "Q1 a slot counts for another namespace",
         3, give_away(s, s->state->write));

/* A step is out that leaves a state behind, and another slot is parked. */
static void make_steps(struct scene *scene)
{
    kvp_config config = config_of(4, 4, 8);
    config.state_slots = 6;
    config.steps = KVP_STEPS_OVERLAPPED;
    scene->w = make_world(&config);
    kvp_copy copy;
    uint32_t n = 0;
    uint64_t step = 0;
    const kvp_seq seq = open_seq(&scene->w, ints(0), 9, NULL);
    const kvp_seq other = open_seq(&scene->w, ints(100), 9, NULL);
    assert_ok(kvp_step_begin(scene->w.cache, &copy, 1, &n, &step));
    n = 8;
    assert_ok(kvp_step_commit(scene->w.cache, step, &seq, &n, 1));
    close_seq(&scene->w, other);
    scene->cache = scene->w.cache;
    scene->seq = kvpi_find_seq(scene->cache, seq);
    scene->state = kvpi_states_of(scene->cache, scene->seq);
}

#define S7 "S7 a slot of a step that is out is none, or is of no use"

PLANTED_IN(make_steps, s7_a_checkpoint, S7, 3)
{
    const uint32_t slot = *kvpi_ahead_of(s->cache, s->seq, 1);
    kvpi_block(&s->cache->states.pool, slot)->content = 1;
}

/* Up to where the step that is out has committed. */
static uint32_t *until(struct scene *s)
{
    return kvpi_of_step(s->cache, s->cache->steps.until_at, 1) +
           kvpi_seq_place(&s->cache->table, s->seq);
}

PLANT_IN(make_steps, s7_not_more_than_computed, S7, 3, *until(s) = 1 + s->seq->computed);
PLANT_IN(make_steps, s7_more_than_there_is, S7, 3, *until(s) = 2 + s->seq->tokens);
PLANT_IN(make_steps, s3_exclusive_without_a_slot,
         "S3 slots are writable, and there is no slot of state to write", 3, s->seq->exclusive = 1);
PLANT_IN(make_steps, t1_without_a_holder, "T1 a reference count is not the number of holders", 3,
         *kvpi_ahead_of(s->cache, s->seq, 1) = 0);
PLANT_IN(make_steps, b2_one_parked_more, "B2 the counts do not sum to the number of slots", 1,
         s->cache->states.pool.n_parked++);

/* A sequence of 8 computed tokens is swapped in: the plan, which waits, brings its state. */
static void make_arrival(struct scene *scene)
{
    kvp_config config = config_of(4, 4, 8);
    config.state_slots = 6;
    config.steps = KVP_STEPS_OVERLAPPED;
    config.host_blocks = 6;
    config.host_state_slots = 3;
    scene->w = make_world(&config);
    kvp_copy copies[8];
    uint32_t n = 0;
    uint64_t step = 0;
    const kvp_seq seq = open_done(&scene->w, ints(0), 8);
    assert_ok(kvp_seq_swap_out(scene->w.cache, &seq, 1, NULL));
    assert_ok(kvp_step_begin(scene->w.cache, copies, 8, &n, &step));
    assert_ok(kvp_seq_swap_in(scene->w.cache, &seq, 1, 0, NULL));
    scene->cache = scene->w.cache;
    scene->seq = kvpi_find_seq(scene->cache, seq);
    scene->state = kvpi_states_of(scene->cache, scene->seq);
    scene->nodes[1] =
        kvpi_row_nodes(&scene->cache->table, kvpi_seq_place(&scene->cache->table, scene->seq))[1];
}

static uint64_t *arriving(struct scene *s)
{
    return &kvpi_pool_arriving(&s->cache->states.pool)[s->state->read];
}

#define X3 "X3 a state is awaited that no copy brings, or that is hit"

PLANT_IN(make_arrival, x3_of_a_plan_without_the_copy, X3, 3, (*arriving(s))--);
PLANT_IN(make_arrival, x3_of_no_step, X3, 3, *arriving(s) = s->cache->steps.begun + 2);

PLANTED_IN(make_arrival, x3_to_another_tier, X3, 3)
{
    const struct kvpi_plan *plan = &s->cache->plan;
    kvpi_plan_copies(plan)[plan->n_out + plan->n - 1].dst_tier = KVP_HOST;
}

PLANT_IN(make_arrival, x3_a_checkpoint, X3, 3,
         kvpi_states_attach(s->cache, s->nodes[1], s->state->read));

/* Of the tokens 8 and on, two have slots of a ring. */
static void make_ring(struct scene *scene)
{
    make_scene_with_quotas(scene);
    const kvp_seq seq =
        kvpi_table_handle(&scene->cache->table, scene->seq, scene->cache->recorder.cache_bits);
    const uint32_t two = 2;
    const kvp_batch batch = {.struct_size = sizeof(batch),
                             .n_seqs = 1,
                             .flags = KVP_BATCH_RING,
                             .seqs = &seq,
                             .n_tokens = &two};
    assert_ok(kvp_seq_extend_many(scene->cache, &batch));
    assert_int_equal(scene->state->n_ring, 2);
}

#define S9 "S9 a ring has a slot that is none, or has too many"

PLANT_IN(make_ring, s9_a_checkpoint, S9, 3,
         kvpi_block(&s->cache->states.pool, s->state->ring[0])->content = s->nodes[1]);
PLANT_IN(make_ring, s9_of_the_step_before, S9, 3, s->state->ring_at--);
PLANT_IN(make_ring, s9_of_the_last_token, S9, 3, s->seq->tokens--);

PLANTED_IN(make_ring, s9_nothing_else_to_write, S9, 3)
{
    s->state->write = 0;
    s->seq->exclusive = 0;
    s->seq->writable = s->seq->computed;
}

PLANT_IN(make_ring, t1_a_slot_less, "T1 a reference count is not the number of holders", 3,
         s->state->n_ring--);
PLANT_IN(make_ring, q1_anothers_slot_in_the_ring, "Q1 a slot counts for another namespace", 3,
         give_away(s, s->state->ring[1]));

TEST(test_every_planted_fault_is_named)
{
    struct scene scene;
    assert_planted(&scene);
}

/* ------------------------------------------------------------------------------------ arguments */

TEST(test_wrong_arguments)
{
    kvp_config config = config_of(4, 4, 8);
    config.state_slots = 6;
    scoped_world w = make_world(&config);
    const kvp_seq seq = open_done(&w, ints(0), 4);
    kvp_seq none = seq;
    none.bits ^= 1;
    kvp_state_info info;
    kvp_state_stats stats;
    int32_t read = 7, write = 7;
    assert_status(KVP_E_ARG, kvp_seq_checkpoint(NULL, seq, NULL));
    assert_status(KVP_E_ARG, kvp_seq_state_get(NULL, seq, &info));
    assert_status(KVP_E_ARG, kvp_seq_state_get(w.cache, seq, NULL));
    assert_status(KVP_E_HANDLE, kvp_seq_state_get(w.cache, none, &info));
    assert_status(KVP_E_ARG, kvp_cache_state_stats_get(NULL, &stats));
    assert_status(KVP_E_ARG, kvp_cache_state_stats_get(w.cache, NULL));
    assert_status(KVP_E_ARG, kvp_meta_states(NULL, &seq, 1, &read, &write));
    assert_status(KVP_E_ARG, kvp_meta_states(w.cache, NULL, 1, &read, &write));
    assert_status(KVP_E_HANDLE, kvp_meta_states(w.cache, &none, 1, &read, &write));
    assert_int_equal(read, 7);
    assert_status(KVP_E_HANDLE,
                  kvp_meta_states(w.cache, (const kvp_seq[]){none, seq}, 2, NULL, NULL));
    assert_ok(kvp_meta_states(w.cache, NULL, 0, &read, &write));
    const int32_t token = 5;
    assert_ok(kvp_seq_extend(w.cache, seq, &token, 1, 0));
    assert_ok(kvp_meta_states(w.cache, &seq, 1, NULL, NULL));
    assert_ok(kvp_meta_states(w.cache, &seq, 1, &read, &write));
    assert_true(read > 0 && write > 0);
    kvp_block_info block;
    assert_ok(kvp_block_info_get(w.cache, 1, KVP_DEVICE, read, &block));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 1, KVP_DEVICE, -1, &block));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 1, KVP_DEVICE, 6, &block));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 1, KVP_HOST + 1, 1, &block));
    assert_status(KVP_E_ARG, kvp_block_info_get(w.cache, 2, KVP_DEVICE, 1, &block));
}

TEST_MAIN(NULL, NULL)
