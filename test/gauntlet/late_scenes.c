/* Defects that need work that runs late: steps out, parked blocks, copies that have not run. Each
 * scene is played with several orders of the device's moves. */
#include "scenes.h"

#include "late.h"

#include <kvpager/meta.h>
#include <kvpager/swap.h>

#include <string.h>

/* T12: sequences are closed and popped between the begin of a step and its forward pass. */
static void memory_of_a_step_is_nobody_elses(rig *r)
{
    for (uint64_t seed = 1; seed <= LATE_SEEDS; seed++) {
        const kvp_config config = late_config(9, 0);
        late l = late_begin(r, &config, seed);
        kvp_seq none = {0};
        subject *s[] = {late_open(&l, rig_tokens(0), 8), late_open(&l, rig_tokens(100), 8)};
        work_step *first = late_step(&l, s, 2);
        work_step *second = late_step(&l, NULL, 0); /* a begin twice is two steps */
        EXPECT(r, second->number == first->number + 1);
        late_close(&l, s[0]);
        EXPECT_OK(r, kvp_seq_truncate(l.w->cache, s[1]->handle, 4, NULL));
        truth_line_cut(&l.w->truth, &s[1]->line, 4);
        s[1]->known = s[1]->scheduled = 4;
        watch_called(l.w, false);
        EXPECT_EQ(r, watch_stats(l.w).parked_blocks, 3);
        const kvp_prompt prompt = rig_prompt(rig_tokens(200), 24);
        EXPECT_STATUS(r, KVP_E_NO_BLOCKS, kvp_seq_open(l.w->cache, l.ns, &prompt, &none, NULL));
        late_finish(&l, first);
        EXPECT_EQ(r, watch_stats(l.w).parked_blocks, 3); /* the second one is out still */
        late_finish(&l, second);
        EXPECT_EQ(r, watch_stats(l.w).parked_blocks, 0);
        subject *other = late_open(&l, rig_tokens(200), 24);
        late_finish(&l, late_step(&l, &other, 1));
        late_end(&l);
    }
}

/* V5: who waits for parked blocks is told "later", and gets them when the steps are reported,
 * however many others come and go. */
static void parked_blocks_come_back(rig *r)
{
    const kvp_config config = late_config(4, 0);
    late l = late_begin(r, &config, 5);
    kvp_admission admission = {0};
    for (int32_t round = 0; round < 20; round++) {
        const kvp_prompt next = rig_prompt(rig_tokens(20 * round + 20), 16);
        kvp_seq none = {0};
        subject *s = late_open(&l, rig_tokens(20 * round), 16);
        work_step *step = late_step(&l, &s, 1);
        late_close(&l, s);
        EXPECT_EQ(r, watch_stats(l.w).parked_blocks, 4);
        EXPECT_OK(r, kvp_cache_can_open(l.w->cache, l.ns, &next, &admission));
        EXPECT_EQ(r, admission.verdict, KVP_ADMIT_LATER);
        EXPECT_EQ(r, admission.missing_blocks, 4);
        EXPECT_STATUS(r, KVP_E_NO_BLOCKS, kvp_seq_open(l.w->cache, l.ns, &next, &none, NULL));
        late_finish(&l, step);
        EXPECT_OK(r, kvp_cache_can_open(l.w->cache, l.ns, &next, &admission));
        EXPECT_EQ(r, admission.verdict, KVP_ADMIT_OK);
    }
    late_end(&l);
}

/* V6: closed while its step writes; somebody else computes in a later step that may run first. */
static void step_that_is_out_writes_to_nobody(rig *r)
{
    for (uint64_t seed = 1; seed <= LATE_SEEDS; seed++) {
        const kvp_config config = late_config(6, 0);
        late l = late_begin(r, &config, seed);
        subject *s = late_open(&l, rig_tokens(0), 12);
        work_step *first = late_step(&l, &s, 1);
        late_close(&l, s);
        subject *other = late_open(&l, rig_tokens(1000), 12); /* takes the other three */
        work_step *second = late_step(&l, &other, 1);
        late_run(&l, second);
        late_run(&l, first);
        late_done(&l, second);
        late_done(&l, first);
        EXPECT_EQ(r, watch_stats(l.w).parked_blocks, 0);
        late_extend(&l, other, rig_tokens(1012), 12);
        late_finish(&l, late_step(&l, &other, 1));
        late_end(&l);
    }
}

/* R1: what a plan brings back from the host is found by others only when its step is done. */
static void host_hit_is_found_when_it_has_arrived(rig *r)
{
    for (uint64_t seed = 1; seed <= LATE_SEEDS; seed++) {
        const kvp_config config = late_config(8, 16);
        late l = late_begin(r, &config, seed);
        late_leave_cached(&l, rig_tokens(0), 16);
        late_leave_cached(&l, rig_tokens(1000), 32); /* the first goes to the host */
        late_finish(&l, late_step(&l, NULL, 0));
        subject *a = late_open(&l, rig_tokens(0), 17);
        EXPECT_EQ(r, l.info.host_tokens, 16);
        work_step *step = late_step(&l, &a, 1);
        kvp_prompt here = rig_prompt(rig_tokens(0), 17);
        kvp_open_info info = {0};
        here.flags = KVP_OPEN_DEVICE_ONLY;
        EXPECT_OK(r, kvp_cache_match(l.w->cache, l.ns, &here, &info));
        EXPECT_EQ(r, info.hit_tokens, 0); /* its copies have not run */
        late_finish(&l, step);
        EXPECT_OK(r, kvp_cache_match(l.w->cache, l.ns, &here, &info));
        EXPECT_EQ(r, info.hit_tokens, 16);
        subject *b = late_open(&l, rig_tokens(0), 18);
        EXPECT_EQ(r, l.info.hit_tokens, 16);
        late_finish(&l, late_step(&l, &b, 1)); /* reads what came back */
        late_end(&l);
    }
}

/* R2: tables are written into the caller's memory, one for each step; what the next step does to
 * the rows does not reach the one that is out, nor does anybody get its blocks. */
static void table_of_a_step_stays_as_it_was_made(rig *r)
{
    for (uint64_t seed = 1; seed <= LATE_SEEDS; seed++) {
        const kvp_config config = late_config(8, 0);
        late l = late_begin(r, &config, seed);
        int32_t tables[2][4] = {{0}}, lens[2], starts[2][2], positions[16];
        int64_t slots[16];
        const uint32_t n = 12;
        subject *a = late_open(&l, rig_tokens(0), n);
        kvp_meta_batch batch = {.struct_size = sizeof(batch), .n_seqs = 1};
        kvp_meta_dense dense = {.struct_size = sizeof(dense), .row_stride = 4, .max_tokens = 16};
        batch.seqs = &a->handle;
        batch.n_tokens = &n;
        dense.slot_mapping = slots;
        dense.positions = positions;
        dense.block_table = tables[0];
        dense.seq_lens = &lens[0];
        dense.query_start = starts[0];
        EXPECT_OK(r, kvp_meta_fill_dense(l.w->cache, &batch, &dense));
        const int32_t before[] = {tables[0][0], tables[0][1], tables[0][2], tables[0][3]};
        work_step *step = late_step(&l, &a, 1);
        late_close(&l, a); /* its table is pending on the device */
        subject *b = late_open(&l, rig_tokens(1000), n);
        batch.seqs = &b->handle;
        dense.block_table = tables[1];
        dense.seq_lens = &lens[1];
        dense.query_start = starts[1];
        EXPECT_OK(r, kvp_meta_fill_dense(l.w->cache, &batch, &dense));
        EXPECT(r, memcmp(tables[0], before, sizeof(before)) == 0);
        for (uint32_t i = 0; i < 9; i++)
            EXPECT(r, tables[0][i / 3] != tables[1][i % 3]);
        late_finish(&l, late_step(&l, &b, 1));
        late_finish(&l, step);
        late_end(&l);
    }
}

/* D1: the copies of a full hit fail. It counts for nothing, the sequence is named, and is computed
 * anew; nobody reads what lay there before. */
static void hit_whose_copy_failed_is_no_hit(rig *r)
{
    for (uint64_t seed = 1; seed <= LATE_SEEDS; seed++) {
        const kvp_config config = late_config(8, 16);
        late l = late_begin(r, &config, seed);
        late_leave_cached(&l, rig_tokens(0), 16);
        late_leave_cached(&l, rig_tokens(1000), 32);
        late_finish(&l, late_step(&l, NULL, 0));
        subject *a = late_open(&l, rig_tokens(0), 16);
        EXPECT_EQ(r, l.info.hit_tokens, 16);
        work_step *step = late_step(&l, &a, 1);
        step->fails = true;
        step->fail_after = (uint32_t)seed % 4;
        late_run(&l, step);
        EXPECT_EQ(r, late_failed(&l, step), 1);
        EXPECT_EQ(r, watch_info(l.w, a).computed_tokens, 0);
        EXPECT_OK(r, kvp_seq_extend(l.w->cache, a->handle, NULL, 0, 0));
        watch_called(l.w, true);
        late_finish(&l, late_step(&l, &a, 1));
        EXPECT_EQ(r, watch_info(l.w, a).computed_tokens, 16);
        late_end(&l);
    }
}

/* S3: hits on the host are opened and closed before their copies run, again and again. */
static void copies_of_who_has_left_are_dropped(rig *r)
{
    const kvp_config config = late_config(8, 16);
    late l = late_begin(r, &config, 3);
    late_leave_cached(&l, rig_tokens(0), 16);
    late_leave_cached(&l, rig_tokens(1000), 32);
    late_finish(&l, late_step(&l, NULL, 0));
    const kvp_stats before = watch_stats(l.w);
    for (uint32_t turn = 0; turn < 100; turn++) {
        subject *s = late_open(&l, rig_tokens(0), 17);

        if (turn % 2 == 1) {
            work_step *step = late_step(&l, &s, 1); /* its copies are out when it leaves */
            late_close(&l, s);
            late_finish(&l, step);
        } else {
            late_close(&l, s);
        }
        late_finish(&l, late_step(&l, NULL, 0));
        const kvp_stats stats = watch_stats(l.w);
        EXPECT_EQ(r, stats.pending_copies, 0);
        EXPECT_EQ(r, stats.host_held_blocks, 0);
        EXPECT_EQ(r, stats.open_seqs, 0);
        EXPECT_EQ(r, stats.free_blocks + stats.cached_blocks,
                  before.free_blocks + before.cached_blocks);
    }
    late_end(&l);
}

static const scene scenes[] = {
    {"T12", "memory-of-a-step-is-nobody-elses", "TVM", memory_of_a_step_is_nobody_elses},
    {"V5", "parked-blocks-come-back", "vllm#49675", parked_blocks_come_back},
    {"V6", "step-that-is-out-writes-to-nobody", "vllm#45357", step_that_is_out_writes_to_nobody},
    {"R1", "host-hit-is-found-when-it-has-arrived", "TensorRT-LLM#8813",
     host_hit_is_found_when_it_has_arrived},
    {"R2", "table-of-a-step-stays-as-it-was-made", "TensorRT-LLM#15546",
     table_of_a_step_stays_as_it_was_made},
    {"S3", "copies-of-who-has-left-are-dropped", "sglang#9927", copies_of_who_has_left_are_dropped},
    {"D1", "hit-whose-copy-failed-is-no-hit", "dynamo#15079", hit_whose_copy_failed_is_no_hit},
};

const scene_list late_scenes = SCENES(scenes);
