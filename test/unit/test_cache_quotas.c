/* Quotas of namespaces: what counts, and who goes first. Every rule of quotas.h, once; random calls
 * on the same rules are test/model's. */
#include <stdlib.h>
#include <string.h>

#include "snaps.h"
#include "planted.h"
#include "tenants.h"
#include "tiers.h"

#include "core/cache/audit.h"
#include "core/cache/state.h"
#include "core/snapshot/ranges.h"

/* Prompts of whole blocks: opened, computed and closed, so that they stay cached. */
static void leave_in(struct tenants *t, kvp_ns ns, int32_t first, uint32_t n_blocks)
{
    close_seq(&t->w, open_in(t, ns, first, 4 * n_blocks));
}

static uint32_t hit_in(const struct tenants *t, kvp_ns ns, int32_t first, uint32_t n_blocks)
{
    const kvp_prompt prompt = prompt_of(ints(first), 4 * n_blocks);
    kvp_open_info info;
    assert_ok(kvp_cache_match(t->w.cache, ns, &prompt, &info));
    return info.hit_tokens / 4;
}

static void set_quota(const struct tenants *t, kvp_ns ns, uint32_t tier, uint32_t n_blocks)
{
    assert_ok(kvp_ns_quota(t->w.cache, ns, tier, n_blocks));
}

#define assert_counts(t, ns, blocks_, cached_)                                                     \
    do {                                                                                           \
        assert_int_equal(info_in(t, ns).blocks, blocks_);                                          \
        assert_int_equal(info_in(t, ns).cached_blocks, cached_);                                   \
    } while (0)

#define assert_host_counts(t, ns, blocks_, cached_)                                                \
    do {                                                                                           \
        assert_int_equal(info_in(t, ns).host_blocks, blocks_);                                     \
        assert_int_equal(info_in(t, ns).host_cached_blocks, cached_);                              \
    } while (0)

/* ---------------------------------------------------------------------------------- what counts */

TEST(test_a_block_counts_once_from_take_to_free)
{
    const kvp_config config = tenants_config(12, 0);
    struct tenants t = make_tenants(&config);
    const kvp_seq seq = open_in(&t, t.a, 0, 10); /* two full blocks, and a part of one */
    assert_counts(&t, t.a, 3, 0);
    const kvp_seq child = fork_seq(&t.w, seq, 10); /* shares all: nothing more */
    assert_counts(&t, t.a, 3, 0);
    assert_ok(kvp_seq_extend(t.w.cache, child, ints(500), 1, 0)); /* copy-on-write */
    assert_counts(&t, t.a, 4, 0);
    close_seq(&t.w, seq); /* the part has no content: free; what is shared is held still */
    assert_counts(&t, t.a, 3, 0);
    close_seq(&t.w, child);
    assert_counts(&t, t.a, 2, 2);
    const kvp_seq again = open_in(&t, t.a, 0, 8); /* a hit */
    assert_counts(&t, t.a, 2, 0);
    assert_ok(kvp_seq_invalidate(t.w.cache, again, 4, NULL, 0, NULL));
    close_seq(&t.w, again);
    assert_counts(&t, t.a, 1, 1);
    assert_counts(&t, t.b, 0, 0);
    assert_ok(kvp_cache_reset(t.w.cache));
    assert_counts(&t, t.a, 0, 0);
    end_world(&t.w);
}

TEST(test_calls_that_are_refused)
{
    const kvp_config config = tenants_config(8, 0);
    struct tenants t = make_tenants(&config);
    const kvp_ns none = {0};
    kvp_ns_info info;
    memset(&info, 0x55, sizeof(info));
    const kvp_ns_info untouched = info;
    set_quota(&t, t.a, KVP_DEVICE, 3);
    assert_unchanged(&t.w, {
        assert_status(KVP_E_HANDLE, kvp_ns_quota(t.w.cache, none, KVP_DEVICE, 1));
        assert_status(KVP_E_HANDLE, kvp_ns_quota(t.w.cache, none, 7, 1));
        assert_status(KVP_E_ARG, kvp_ns_quota(t.w.cache, t.a, KVP_HOST, 1)); /* there is none */
        assert_status(KVP_E_ARG, kvp_ns_quota(t.w.cache, t.a, 2, 1));
        assert_status(KVP_E_ARG, kvp_ns_quota(NULL, t.a, KVP_DEVICE, 1));
        assert_status(KVP_E_HANDLE, kvp_ns_info_get(t.w.cache, none, &info));
        assert_status(KVP_E_ARG, kvp_ns_info_get(t.w.cache, t.a, NULL));
        assert_status(KVP_E_ARG, kvp_ns_info_get(NULL, t.a, &info));
    });
    assert_memory_equal(&info, &untouched, sizeof(info));
    assert_int_equal(info_in(&t, t.a).quota, 3);
    assert_int_equal(info_in(&t, t.a).host_quota, KVP_NO_QUOTA);
    assert_int_equal(info_in(&t, t.b).quota, KVP_NO_QUOTA);
    end_world(&t.w);

    kvp_config plain = config_of(4, 4, 8);
    t = make_tenants(&plain);
    assert_unchanged(&t.w, assert_status(KVP_E_STATE, kvp_ns_quota(t.w.cache, t.a, KVP_DEVICE, 1)));
    assert_status(KVP_E_STATE, kvp_ns_info_get(t.w.cache, t.a, &info));
    end_world(&t.w);
    size_t bytes;
    plain.quotas = 2;
    assert_status(KVP_E_ARG, kvp_cache_bytes(&plain, &bytes));
}

/* ------------------------------------------------------------------------------- who goes first */

/* a has what it wants, b sweeps: without a quota it evicts a. */
TEST(test_a_noisy_namespace_lives_on_its_own_blocks)
{
    for (uint32_t quota = 3; quota <= 4; quota++) {
        const kvp_config config = tenants_config(8, 0);
        struct tenants t = make_tenants(&config);
        set_quota(&t, t.b, KVP_DEVICE, quota == 4 ? KVP_NO_QUOTA : quota);
        leave_in(&t, t.a, 0, 5);
        for (int32_t i = 1; i < 9; i++)
            leave_in(&t, t.b, 100 * i, 2);
        assert_int_equal(hit_in(&t, t.a, 0, 5), quota == 4 ? 0 : 5);
        assert_int_equal(hit_in(&t, t.b, 800, 2), 2); /* the newest */
        assert_counts(&t, t.b, quota == 4 ? 8 : 3, quota == 4 ? 8 : 3);
        end_world(&t.w);
    }
}

/* It may have more as long as nobody needs it; then it is the first to give, down to its quota. */
TEST(test_what_is_borrowed_goes_first)
{
    const kvp_config config = tenants_config(8, 0);
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.a, 0, 2); /* the oldest */
    leave_in(&t, t.b, 100, 6);
    set_quota(&t, t.b, KVP_DEVICE, 3);
    assert_counts(&t, t.b, 6, 6);
    leave_in(&t, t.w.ns, 200, 3);
    assert_counts(&t, t.b, 3, 3);
    assert_int_equal(hit_in(&t, t.a, 0, 2), 2);
    assert_int_equal(hit_in(&t, t.b, 100, 6), 3); /* of a row, the last goes first */
    leave_in(&t, t.w.ns, 300, 1);                 /* b is not over any more: the queue's first */
    assert_counts(&t, t.b, 3, 3);
    assert_int_equal(hit_in(&t, t.a, 0, 2), 1);
    end_world(&t.w);
}

TEST(test_namespaces_that_are_over_take_turns)
{
    const kvp_config config = tenants_config(9, 0);
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.w.ns, 300, 1);
    leave_in(&t, t.a, 0, 4);
    leave_in(&t, t.b, 100, 4);
    set_quota(&t, t.a, KVP_DEVICE, 1);
    set_quota(&t, t.b, KVP_DEVICE, 0);
    const kvp_seq seq = open_in(&t, t.w.ns, 400, 4); /* one block: a's, its place is lower */
    assert_counts(&t, t.a, 3, 3);
    assert_counts(&t, t.b, 4, 4);
    assert_ok(kvp_seq_extend(t.w.cache, seq, ints(410), 4, 0));
    assert_counts(&t, t.b, 3, 3);
    assert_ok(kvp_seq_extend(t.w.cache, seq, ints(420), 16, 0)); /* a, b, a, b */
    assert_counts(&t, t.a, 1, 1);
    assert_counts(&t, t.b, 1, 1);
    assert_ok(kvp_seq_extend(t.w.cache, seq, ints(440), 4, 0)); /* only b is over */
    assert_counts(&t, t.a, 1, 1);
    assert_counts(&t, t.b, 0, 0);
    assert_ok(kvp_seq_extend(t.w.cache, seq, ints(450), 4, 0)); /* nobody is: the oldest */
    assert_int_equal(hit_in(&t, t.w.ns, 300, 1), 0);
    end_world(&t.w);
}

/* Of its own blocks, the lowest class first, and what is cached in others' classes stays. */
/* More than fit in a word of the bits that say who is over: behind the last one comes the first. */
TEST(test_turns_go_round_many_namespaces)
{
    kvp_config config = tenants_config(4, 0);
    config.max_namespaces = 70;
    struct tenants t = make_tenants(&config);
    kvp_ns last = t.b;
    for (char name = 0; name < 67; name++)
        assert_ok(kvp_ns_open(t.w.cache, &name, 1, &last));
    leave_in(&t, last, 0, 2);
    leave_in(&t, t.a, 100, 2);
    set_quota(&t, last, KVP_DEVICE, 1);
    set_quota(&t, t.a, KVP_DEVICE, 1);
    leave_in(&t, t.b, 200, 1); /* a's: its place comes before */
    assert_counts(&t, t.a, 1, 1);
    set_quota(&t, t.a, KVP_DEVICE, 0);
    leave_in(&t, t.b, 300, 1); /* the last one's turn */
    assert_counts(&t, last, 1, 1);
    set_quota(&t, t.b, KVP_DEVICE, 3);
    leave_in(&t, t.b, 400, 1); /* and a's again, from the first word on */
    assert_counts(&t, t.a, 0, 0);
    assert_counts(&t, t.b, 3, 3);
    end_world(&t.w);
}

TEST(test_retention_classes_order_what_is_its_own)
{
    const kvp_config config = tenants_config(6, 0);
    struct tenants t = make_tenants(&config);
    const kvp_seq high = open_in(&t, t.b, 0, 8);
    assert_ok(kvp_seq_retain(t.w.cache, high, (kvp_range){0, 8}, 5));
    close_seq(&t.w, high);
    leave_in(&t, t.b, 100, 1);
    leave_in(&t, t.a, 200, 3);
    set_quota(&t, t.b, KVP_DEVICE, 3);
    leave_in(&t, t.b, 300, 1);
    assert_int_equal(hit_in(&t, t.b, 0, 2), 2);
    assert_int_equal(hit_in(&t, t.b, 100, 1), 0);
    leave_in(&t, t.b, 400, 2); /* one more of class 0, then class 5, before a's of class 0 */
    assert_int_equal(hit_in(&t, t.b, 0, 2), 1);
    assert_int_equal(hit_in(&t, t.a, 200, 3), 3);
    end_world(&t.w);
}

/* All that it has is held: a quota makes no call fail. */
TEST(test_a_quota_refuses_nothing)
{
    const kvp_config config = tenants_config(6, 0);
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.a, 0, 3);
    set_quota(&t, t.b, KVP_DEVICE, 2);
    const kvp_prompt prompt = prompt_of(ints(100), 24);
    kvp_admission admission;
    assert_ok(kvp_cache_can_open(t.w.cache, t.b, &prompt, &admission));
    assert_int_equal(admission.verdict, KVP_ADMIT_OK);
    const kvp_seq seq = open_in(&t, t.b, 100, 24);
    assert_counts(&t, t.b, 6, 0);
    assert_counts(&t, t.a, 0, 0);
    close_seq(&t.w, seq);
    leave_in(&t, t.a, 0, 4); /* b is over, and gives */
    assert_counts(&t, t.b, 2, 2);
    end_world(&t.w);
}

/* Hits are held as they are matched; an open that is refused puts all of it back. */
TEST(test_a_refused_open_changes_nothing)
{
    const kvp_config config = tenants_config(8, 0);
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.b, 100, 3);
    leave_in(&t, t.b, 200, 2);
    set_quota(&t, t.b, KVP_DEVICE, 2);
    const kvp_seq held = open_in(&t, t.a, 0, 12);
    const kvp_prompt prompt = prompt_of(ints(100), 28);
    kvp_seq none;
    assert_unchanged(
        &t.w, assert_status(KVP_E_NO_BLOCKS, kvp_seq_open(t.w.cache, t.b, &prompt, &none, NULL)));
    assert_counts(&t, t.b, 5, 5);
    close_seq(&t.w, held);
    end_world(&t.w);
}

/* ---------------------------------------------------------------------------- flush, close, new */

TEST(test_a_flush_leaves_the_count_and_goes_first)
{
    const kvp_config config = tenants_config(8, 0);
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.a, 0, 3);
    leave_in(&t, t.b, 100, 3);
    set_quota(&t, t.b, KVP_DEVICE, 4);
    assert_ok(kvp_ns_flush(t.w.cache, t.b));
    assert_counts(&t, t.b, 3, 3);
    leave_in(&t, t.b, 100, 4); /* two free ones, then two that were forgotten */
    assert_int_equal(hit_in(&t, t.b, 100, 4), 4);
    assert_int_equal(hit_in(&t, t.a, 0, 3), 3);
    end_world(&t.w);
}

TEST(test_a_closed_namespace_counts_for_nobody)
{
    const kvp_config config = tenants_config(8, 0);
    struct tenants t = make_tenants(&config);
    kvp_ns c;
    leave_in(&t, t.a, 0, 3);
    set_quota(&t, t.a, KVP_DEVICE, 0);
    const kvp_seq seq = open_in(&t, t.a, 100, 8);
    assert_ok(kvp_ns_close(t.w.cache, t.a));
    assert_ok(kvp_ns_open(t.w.cache, "c", 1, &c)); /* in the same place */
    assert_counts(&t, c, 0, 0);
    assert_int_equal(info_in(&t, c).quota, KVP_NO_QUOTA);
    assert_ok(kvp_seq_extend(t.w.cache, seq, ints(110), 4, 0)); /* it goes on */
    assert_counts(&t, c, 0, 0);
    leave_in(&t, t.b, 200, 2);
    leave_in(&t, c, 300, 4); /* evicts what nobody has, then b's: in the queue's order */
    assert_counts(&t, c, 4, 4);
    assert_counts(&t, t.b, 1, 1);
    close_seq(&t.w, seq);
    assert_status(KVP_E_HANDLE, kvp_ns_quota(t.w.cache, t.a, KVP_DEVICE, 1));
    end_world(&t.w);
}

/* ---------------------------------------------------------------------------------------- tiers */

TEST(test_a_swapped_sequence_counts_on_the_host)
{
    const kvp_config config = tenants_config(8, 8);
    struct tenants t = make_tenants(&config);
    const kvp_seq seq = open_in(&t, t.a, 0, 10);
    swap_out(&t.w, &seq, 1);
    assert_counts(&t, t.a, 2, 2);
    assert_host_counts(&t, t.a, 3, 0);
    close_seq(&t.w, seq);
    assert_host_counts(&t, t.a, 2, 2);
    end_world(&t.w);
}

/* What is evicted is kept for the namespace that had it, at the cost of its own. */
TEST(test_kept_content_has_the_hosts_quota)
{
    const kvp_config config = tenants_config(4, 4);
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.a, 0, 4);
    leave_in(&t, t.b, 100, 2); /* two of a are kept on the host */
    assert_host_counts(&t, t.a, 2, 2);
    set_quota(&t, t.b, KVP_HOST, 1);
    set_quota(&t, t.b, KVP_DEVICE, 2);
    for (int32_t i = 2; i < 8; i++)
        leave_in(&t, t.b, 100 * i, 2);
    assert_host_counts(&t, t.a, 2, 2);
    assert_int_equal(hit_in(&t, t.a, 0, 4), 4);
    assert_host_counts(&t, t.b, 2, 2); /* one is borrowed */
    end_world(&t.w);
}

TEST(test_nothing_is_kept_at_the_cost_of_who_is_not_over)
{
    const kvp_config config = tenants_config(4, 2);
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.a, 0, 4);
    leave_in(&t, t.b, 100, 2); /* a's two fill the host */
    set_quota(&t, t.b, KVP_HOST, 0);
    assert_int_equal(info_in(&t, t.b).host_quota, 0);
    set_quota(&t, t.b, KVP_DEVICE, 2);
    const uint64_t unkept = stats_of(&t.w).unkept_blocks;
    leave_in(&t, t.b, 200, 2);
    assert_host_counts(&t, t.b, 0, 0);
    assert_host_counts(&t, t.a, 2, 2);
    assert_int_equal(stats_of(&t.w).unkept_blocks, unkept + 2);
    set_quota(&t, t.b, KVP_HOST, 1); /* it has fewer: the queue's first goes, a's */
    leave_in(&t, t.b, 300, 2);
    assert_host_counts(&t, t.b, 1, 1);
    assert_host_counts(&t, t.a, 1, 1);
    end_world(&t.w);
}

TEST(test_parked_content_counts_and_cannot_go)
{
    kvp_config config = tenants_config(6, 0);
    config.steps = KVP_STEPS_OVERLAPPED;
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.a, 0, 2);
    set_quota(&t, t.b, KVP_DEVICE, 2);
    const kvp_seq seq = open_in(&t, t.b, 100, 10);
    const uint64_t step = begin_step(&t.w);
    close_seq(&t.w, seq);
    assert_counts(&t, t.b, 2, 0); /* parked; the part without content counts for nobody */
    leave_in(&t, t.b, 200, 2);    /* a free one, and one of a's: b has none to give */
    assert_int_equal(hit_in(&t, t.a, 0, 2), 1);
    assert_ok(kvp_step_done(t.w.cache, step, &(uint64_t){0}));
    assert_counts(&t, t.b, 4, 4);
    end_world(&t.w);
}

/* ------------------------------------------------------------------------------------ snapshots */

TEST(test_restored_blocks_count_and_quotas_are_set_again)
{
    const kvp_config config = tenants_config(8, 0);
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.b, 100, 2);
    leave_in(&t, t.a, 0, 3);
    leave_in(&t, t.b, 200, 3);
    set_quota(&t, t.b, KVP_DEVICE, 1);
    kvp_snapshot_options options = snap_options();
    snap s = snap_of(t.w.cache, &options);
    end_world(&t.w);

    kvp_cache *cache;
    kvp_snapshot_report report;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    assert_ok(snap_load(&s, cache, &report));
    assert_ok(kvp_cache_check(cache, 3, NULL));
    struct tenants again = {.w = {.cache = cache}};
    assert_ok(kvp_ns_open(cache, "a", 1, &again.a));
    assert_ok(kvp_ns_open(cache, "b", 1, &again.b));
    assert_counts(&again, again.a, 3, 3);
    assert_counts(&again, again.b, 5, 5);
    assert_int_equal(info_in(&again, again.b).quota, KVP_NO_QUOTA);
    set_quota(&again, again.b, KVP_DEVICE, 3);
    leave_in(&again, again.a, 300, 2);
    assert_int_equal(hit_in(&again, again.b, 100, 2), 0); /* the older ones went */
    assert_int_equal(hit_in(&again, again.b, 200, 3), 3);
    assert_int_equal(hit_in(&again, again.a, 0, 3), 3);
    kvp_cache_destroy(cache);
    snap_drop(&s);
}

/* ------------------------------------------------------------------------------------ the audit */

/* b is over with 3 cached blocks, a has 2 cached and 1 held. There is no fourth namespace. */
static struct tenants make_three(uint32_t host)
{
    kvp_config config = tenants_config(9, host);
    config.max_namespaces = 3;
    struct tenants t = make_tenants(&config);
    leave_in(&t, t.a, 0, 2);
    leave_in(&t, t.b, 100, 3);
    (void)open_in(&t, t.a, 200, 4);
    set_quota(&t, t.b, KVP_DEVICE, 2);
    return t;
}

static struct kvpi_quotas *quotas_of(struct tenants *t)
{
    return &t->w.cache->pool.quotas;
}

static struct kvpi_account *account_of(struct tenants *t, kvp_ns ns)
{
    return kvpi_quotas_find(quotas_of(t), ns.bits);
}

static uint32_t first_of(struct tenants *t, uint32_t place)
{
    return kvpi_owned(quotas_of(t), quotas_of(t)->n_blocks + place * KVP_RETENTION_CLASSES)->next;
}

struct scene {
    struct tenants t; /* its first member is its world */
};

static void make_scene(struct scene *s)
{
    s->t = make_three(0);
}

PLANT(q1_count, "Q1", 2, account_of(&s->t, s->t.a)->n_blocks++);
PLANT(q1_place, "Q1", 2,
      kvpi_owned(quotas_of(&s->t), first_of(&s->t, 1))->owner |= quotas_of(&s->t)->place_mask);

/* The block of the sequence in this place counts for `ns`; the accounts agree. */
static void give_away(struct tenants *t, uint32_t place, kvp_ns ns)
{
    const int32_t *row = kvpi_row_blocks(&t->w.cache->table, place);
    struct kvpi_account *account = account_of(t, ns);
    assert_int_equal(kvpi_row_entries(t->w.cache, kvpi_seq_at(&t->w.cache->table, place), 0), 1);
    kvpi_owned(quotas_of(t), (uint32_t)row[0])->owner = ns.bits;
    account_of(t, t->a)->n_blocks--;
    if (account != NULL)
        account->n_blocks++;
}

/* Counts are right, and the tree says otherwise. */
PLANTED(q1_another_ones, "Q1", 3)
{
    give_away(&s->t, 0, s->t.b);
}

PLANTED(q1_a_closed_ones, "Q1", 3)
{
    assert_ok(kvp_ns_close(s->t.w.cache, s->t.b));
    give_away(&s->t, 0, s->t.b);
}

/* Without content: only the row says otherwise. */
PLANTED(q1_another_holders, "Q1", 3)
{
    const kvp_prompt prompt = prompt_of(ints(300), 4);
    kvp_seq seq;
    assert_ok(kvp_seq_open(s->t.w.cache, s->t.a, &prompt, &seq, NULL));
    give_away(&s->t, 1, s->t.b);
}

PLANT(q2_free, "Q2", 2,
      kvpi_owned(quotas_of(&s->t), kvpi_pool_victim(&s->t.w.cache->pool))->owner = s->t.a.bits,
      account_of(&s->t, s->t.a)->n_blocks++);
PLANT(q2_nobody, "Q2", 2, kvpi_owned(quotas_of(&s->t), first_of(&s->t, 1))->owner = 0,
      account_of(&s->t, s->t.a)->n_blocks--);

PLANTED(q3_order, "Q3", 2)
{
    struct kvpi_quotas *quotas = quotas_of(&s->t);
    const uint32_t block = first_of(&s->t, 2);
    kvpi_quotas_unlink(quotas, block, 0);
    kvpi_quotas_link(quotas, block, 0, 0);
}

static struct kvpi_owned *ring_of(struct tenants *t, uint32_t place)
{
    return kvpi_owned(quotas_of(t), quotas_of(t)->n_blocks + place * KVP_RETENTION_CLASSES);
}

/* The ring's end is not the queue's last. */
PLANTED(q3_tail, "Q3", 2)
{
    ring_of(&s->t, 2)->prev = first_of(&s->t, 2);
}

/* The queue's last does not lead back to the ring's head. */
PLANTED(q3_end, "Q3", 2)
{
    const uint32_t last = ring_of(&s->t, 2)->prev;
    kvpi_owned(quotas_of(&s->t), last)->next = last;
}

PLANT(q3_missing, "Q3", 2, kvpi_quotas_unlink(quotas_of(&s->t), first_of(&s->t, 1), 0));
PLANT(q3_cached, "Q3", 2, account_of(&s->t, s->t.a)->n_cached++);
PLANT(q3_class, "Q3", 2, account_of(&s->t, s->t.a)->classes |= 2);
PLANT(q4_bit, "Q4", 2, account_of(&s->t, s->t.b)->quota = 3);
PLANT(q4_turn, "Q4", 2, quotas_of(&s->t)->turn = quotas_of(&s->t)->n_accounts);
PLANT(q4_number, "Q4", 2, quotas_of(&s->t)->n_over++);

TEST(test_every_planted_fault_is_named)
{
    struct scene scene;
    assert_planted(&scene);
}

/* Rings of an arena from elsewhere are looked at before they are followed. */
TEST(test_rings_that_lead_outside_are_not_followed)
{
    for (uint32_t i = 0; i < 4; i++) {
        struct tenants t = make_three(4);
        struct kvpi_owned *owned = kvpi_owned(quotas_of(&t), first_of(&t, 1));
        const uint32_t outside = (uint32_t)kvpi_quotas_n_owned(quotas_of(&t));
        kvp_violation violation;
        assert_true(kvpi_in_range(t.w.cache, &violation));
        switch (i) {
        case 0: owned->prev = outside; break;
        case 1: owned->next = outside; break;
        case 2: owned->owner |= quotas_of(&t)->place_mask; break; /* of no namespace */
        default: kvpi_owned(&t.w.cache->host.quotas, 1)->next = outside; break;
        }
        assert_false(kvpi_in_range(t.w.cache, &violation));
        assert_string_equal(violation.invariant, "Q3");
        free(t.w.arena);
    }
}

TEST_MAIN(NULL, NULL)
