/* Defects of hybrid models: attention beside layers with recurrent state. The memory of states is
 * here: a slot holds a digest of all tokens up to a place. A step must find the one of the tokens
 * before it in the slot that it reads. */
#include "scenes.h"

#include <kvpager/states.h>

#include <string.h>

enum { SLOTS = 64, CHAT_TOKENS = 512 };

/* What slots hold, and how many tokens of a sequence are in the state. */
typedef struct hybrid {
    rig *r;
    uint64_t slots[SLOTS];
} hybrid;

static uint64_t digest(const int32_t *tokens, uint32_t n)
{
    uint64_t out = 0;
    for (uint32_t i = 0; i < n; i++) {
        out = (out ^ (uint32_t)(tokens[i] + 1)) * UINT64_C(0x9e3779b97f4a7c15);
        out ^= out >> 29;
    }
    return out;
}

static hybrid begin(rig *r, uint32_t usable, uint32_t slots)
{
    kvp_config config = rig_config(usable);
    config.state_slots = slots;
    rig_begin(r, &config);
    return (hybrid){.r = r};
}

static kvp_state_info state_of(const hybrid *h, const rig_seq *s)
{
    kvp_state_info info;
    memset(&info, 0, sizeof(info));
    EXPECT_OK(h->r, kvp_seq_state_get(h->r->cache, s->handle, &info));
    return info;
}

static uint64_t held_slots(const hybrid *h)
{
    kvp_state_stats stats;
    memset(&stats, 0, sizeof(stats));
    EXPECT_OK(h->r, kvp_cache_state_stats_get(h->r->cache, &stats));
    return stats.held_slots;
}

/* A step from the computed tokens to `to`: attention by the rig, the state here. */
static void step_to(hybrid *h, rig_seq *s, const int32_t *tokens, uint32_t to, bool keep)
{
    const uint32_t from = rig_info(h->r, s).computed_tokens;
    int32_t read = 0, write = 0;
    EXPECT_OK(h->r, kvp_meta_states(h->r->cache, &s->handle, 1, &read, &write));
    EXPECT(h->r, write > 0 && write < SLOTS && read >= 0 && read < SLOTS);
    EXPECT_EQ(h->r, h->slots[read % SLOTS], digest(tokens, from));
    h->slots[write % SLOTS] = digest(tokens, to);
    rig_forward(h->r, s, from, to);
    rig_commit(h->r, s, to);
    if (keep)
        EXPECT_OK(h->r, kvp_seq_checkpoint(h->r->cache, s->handle, NULL));
}

/* Open a prompt and compute it in the chunks that the cache asks for. */
static rig_seq *open_done(hybrid *h, const int32_t *tokens, uint32_t n)
{
    rig_seq *s = rig_open(h->r, tokens, n);
    const kvp_state_info ends = state_of(h, s);
    if (ends.branch_end != 0)
        step_to(h, s, tokens, ends.branch_end, true);
    if (ends.prompt_end != 0)
        step_to(h, s, tokens, ends.prompt_end, true);
    step_to(h, s, tokens, n, false);
    return s;
}

/* C1: a conversation. Each turn begins at the end of the prompt before, not at the first token. */
static void turns_begin_where_prompts_ended(rig *r)
{
    static int32_t chat[CHAT_TOKENS];
    hybrid h = begin(r, 120, 16);
    uint32_t n = 30, last = 0;
    memcpy(chat, rig_tokens(0), sizeof(chat));
    for (uint32_t turn = 0; turn < 8; turn++) {
        rig_seq *s = open_done(&h, chat, n);
        EXPECT(r, r->info.hit_tokens >= last);
        last = (n - 1) / 4 * 4;
        for (uint32_t i = 0; i < 7; i++) { /* the answer */
            rig_extend(r, s, chat + n, 1);
            step_to(&h, s, chat, ++n, false);
        }
        rig_close(r, s);
        n += 9 + turn; /* the next message */
    }
    EXPECT(r, last > 100);
}

/* C2: many users behind one system prompt. Where they part there is no state the first time; the
 * second makes one, and all later ones begin there. */
static void branch_is_hit_from_the_third_on(rig *r)
{
    static int32_t prompt[64];
    hybrid h = begin(r, 120, 16);
    for (int32_t user = 0; user < 6; user++) {
        memcpy(prompt, rig_tokens(0), sizeof(prompt));
        for (int32_t i = 42; i < 64; i++)
            prompt[i] = 1000 * (user + 1) + i;
        rig_close(r, open_done(&h, prompt, 60));
        EXPECT_EQ(r, r->info.hit_tokens, user < 2 ? 0 : 40);
        EXPECT_EQ(r, r->info.stop, user == 1 ? KVP_STOP_NO_KV : KVP_STOP_MISS);
        EXPECT_EQ(r, r->info.stop_group, user == 1 ? 1 : 0); /* the group of states */
    }
}

/* C3: hits need not be as long as a block of attention. */
static void short_prompts_are_hit(rig *r)
{
    kvp_config config = rig_config(16);
    config.block_tokens = 32;
    config.unit_tokens = 4;
    config.state_slots = 16;
    rig_begin(r, &config);
    hybrid h = {.r = r};
    rig_close(r, open_done(&h, rig_tokens(0), 21));
    rig_close(r, open_done(&h, rig_tokens(0), 23));
    EXPECT_EQ(r, r->info.hit_tokens, 20);
    EXPECT_EQ(r, r->info.copied_tokens, 20);
}

/* C4: tokens are taken back. The state is the one at that place, or the call is refused. */
static void roll_back_has_the_state_of_its_place(rig *r)
{
    hybrid h = begin(r, 40, 16);
    const int32_t *tokens = rig_tokens(0);
    rig_seq *s = open_done(&h, tokens, 21); /* with a checkpoint at 20 */
    for (uint32_t n = 21; n < 30; n++) {
        rig_extend(r, s, tokens + n, 1);
        step_to(&h, s, tokens, n + 1, false);
    }
    for (uint32_t n = 1; n < 30; n++)
        if (n != 20)
            EXPECT_STATUS(r, KVP_E_DROPPED, kvp_seq_truncate(r->cache, s->handle, n, NULL));
    EXPECT_EQ(r, rig_info(r, s).computed_tokens, 30);
    rig_truncate(r, s, 20);
    rig_extend(r, s, rig_tokens(500), 3);
    int32_t other[23];
    memcpy(other, tokens, sizeof(other));
    memcpy(other + 20, rig_tokens(500), 3 * sizeof(*other));
    step_to(&h, s, other, 23, false);
    rig_close(r, s);
}

/* C5: states cost slots by the sequence, not by its length. */
static void long_sequences_hold_no_more_slots(rig *r)
{
    hybrid h = begin(r, 400, 40);
    rig_seq *seqs[8];
    for (int32_t i = 0; i < 8; i++) {
        const uint32_t n = 10u << (i % 6);
        seqs[i] = open_done(&h, rig_tokens(1000 * i), n);
        /* its own, and until the next step no other: the checkpoint is cached */
        EXPECT_EQ(r, held_slots(&h), (uint32_t)i + 1);
    }
    for (uint32_t i = 0; i < 8; i++)
        rig_close(r, seqs[i]);
    EXPECT_EQ(r, held_slots(&h), 0);
}

/* C6: a checkpoint that finds no slot is skipped: the request goes on, and nobody is preempted. */
static void checkpoint_without_a_slot_stops_nobody(rig *r)
{
    hybrid h = begin(r, 60, 4); /* three slots */
    rig_seq *seqs[3];
    uint32_t outcome = KVP_CHECKPOINT_MADE;
    for (int32_t i = 0; i < 3; i++) {
        seqs[i] = rig_open(r, rig_tokens(100 * i), 21);
        step_to(&h, seqs[i], rig_tokens(100 * i), 20, false);
    }
    EXPECT_OK(r, kvp_seq_checkpoint(r->cache, seqs[1]->handle, &outcome));
    EXPECT_EQ(r, outcome, KVP_CHECKPOINT_SKIPPED);
    for (int32_t i = 0; i < 3; i++) {
        step_to(&h, seqs[i], rig_tokens(100 * i), 21, false);
        rig_close(r, seqs[i]);
    }
}

static const scene scenes[] = {
    {"C1", "turns-begin-where-prompts-ended", "llama.cpp#20225", turns_begin_where_prompts_ended},
    {"C2", "branch-is-hit-from-the-third-on", "llama.cpp#22384", branch_is_hit_from_the_third_on},
    {"C3", "short-prompts-are-hit", "vllm-ascend#16270, vllm#45702", short_prompts_are_hit},
    {"C4", "roll-back-has-the-state-of-its-place", "llama.cpp (seq_rm)",
     roll_back_has_the_state_of_its_place},
    {"C5", "long-sequences-hold-no-more-slots", "vllm#37429", long_sequences_hold_no_more_slots},
    {"C6", "checkpoint-without-a-slot-stops-nobody", "vllm (align mode)",
     checkpoint_without_a_slot_stops_nobody},
};

const scene_list hybrid_scenes = SCENES(scenes);
