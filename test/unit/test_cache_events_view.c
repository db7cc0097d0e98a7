/* A reader of events: whoever applies every one of them has the set, whatever the calls were. */
#include "events_world.h"
#include "snaps.h"

/* ------------------------------------------------------------------------------------- the view */

enum { VIEW_MAX = 512 };

/* What a reader knows who applies every event: the set, and the root of each hash ever heard of. */
struct view {
    uint64_t next;
    uint32_t n;
    uint32_t n_roots;
    struct {
        kvp_hash hash;
        uint32_t tier;
    } items[VIEW_MAX];
    struct {
        kvp_hash hash;
        kvp_hash root;
    } roots[VIEW_MAX];
};

static int same_hash(const kvp_hash *a, const kvp_hash *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static uint32_t find_item(const struct view *v, const kvp_hash *hash, uint32_t tier)
{
    uint32_t i = 0;
    while (i < v->n && !(v->items[i].tier == tier && same_hash(&v->items[i].hash, hash)))
        i++;
    return i;
}

static const kvp_hash *root_of(struct view *v, const kvp_hash *hash)
{
    for (uint32_t i = 0; i < v->n_roots; i++)
        if (same_hash(&v->roots[i].hash, hash))
            return &v->roots[i].root;
    return NULL;
}

static void store(struct view *v, const kvp_event *event)
{
    assert_int_equal(find_item(v, &event->hash, event->tier), v->n); /* was not in the set */
    assert_true(v->n < VIEW_MAX && v->n_roots < VIEW_MAX);
    v->items[v->n].hash = event->hash;
    v->items[v->n].tier = event->tier;
    v->n++;
    if (root_of(v, &event->hash) == NULL) {
        const kvp_hash *root = event->position == 0 ? &event->parent : root_of(v, &event->parent);
        assert_non_null(root);
        v->roots[v->n_roots].hash = event->hash;
        v->roots[v->n_roots].root = *root;
        v->n_roots++;
    }
}

static void clear(struct view *v, const kvp_hash *root)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < v->n; i++)
        if (!same_hash(root, &no_hash) && !same_hash(root, root_of(v, &v->items[i].hash)))
            v->items[kept++] = v->items[i];
    v->n = kept;
}

static void apply(struct view *v, const kvp_event *event)
{
    if (event->kind == KVP_EVENT_STORED) {
        store(v, event);
    } else if (event->kind == KVP_EVENT_REMOVED) {
        const uint32_t i = find_item(v, &event->hash, event->tier);
        assert_true(i < v->n); /* was in the set */
        v->items[i] = v->items[--v->n];
    } else {
        assert_int_equal(event->kind, KVP_EVENT_CLEARED);
        clear(v, &event->hash);
    }
}

static void follow(struct view *v, const world *w)
{
    kvp_event events[8];
    uint32_t n;
    do {
        assert_ok(kvp_events_read(w->cache, v->next, events, 8, NULL, &n));
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(events[i].number, v->next + i);
            apply(v, &events[i]);
        }
        v->next += n;
    } while (n > 0);
}

/* The unit's parent is not in the list, or it is before the unit. */
static int parent_goes_first(const kvp_event *events, uint32_t n, uint32_t i)
{
    uint32_t k = 0;
    while (k < n && !same_hash(&events[k].hash, &events[i].parent))
        k++;
    return k == n || k < i;
}

/* The snapshot is the set: as large, every element is there, once, and after its ancestors. (Behind
 * units that were withdrawn again and again, an ancestor's equal may come later.) */
static void expect_snapshot(struct view *v, world *w, int ancestors_first)
{
    kvp_event events[VIEW_MAX];
    uint32_t n;
    uint64_t number;
    assert_ok(kvp_events_snapshot(w->cache, events, VIEW_MAX, NULL, &n, &number));
    assert_int_equal(number, v->next - 1);
    assert_int_equal(n, v->n);
    for (uint32_t i = 0; i < n; i++) {
        assert_fields(events[i], kind, KVP_EVENT_STORED, number, number);
        assert_true(find_item(v, &events[i].hash, events[i].tier) < v->n);
        assert_true(!ancestors_first || parent_goes_first(events, n, i));
        for (uint32_t k = 0; k < i; k++) {
            assert_false(events[k].tier == events[i].tier &&
                         same_hash(&events[k].hash, &events[i].hash));
        }
    }
}

/* ----------------------------------------------------------------------------------- some calls */

TEST(test_what_is_kept_goes_from_one_tier_to_the_other)
{
    scoped_world w = events_world(1, 1);
    kvp_hash first[2], second[2];
    struct view v = {.next = 1};
    chain_of("", 0, 1, first);
    chain_of("", 100, 1, second);
    leave_cached(&w, ints(0), 4);
    leave_cached(&w, ints(100), 4);
    follow(&v, &w);
    assert_int_equal(v.n, 2);
    assert_true(find_item(&v, &first[1], KVP_HOST) < 2);
    assert_true(find_item(&v, &second[1], KVP_DEVICE) < 2);
    wipe_device(&w); /* the host has room for one */
    follow(&v, &w);
    assert_int_equal(v.n, 1);
    assert_int_equal(find_item(&v, &second[1], KVP_HOST), 0);
    expect_snapshot(&v, &w, 1);
}

TEST(test_what_is_withdrawn_is_removed_from_both_tiers)
{
    scoped_world w = events_world(15, 15);
    kvp_hash chain[3];
    struct view v = {.next = 1};
    chain_of("", 0, 2, chain);
    const kvp_seq seq = open_done(&w, ints(0), 8);
    swap_out(&w, &seq, 1);
    swap_in(&w, &seq, 1, 0);
    follow(&v, &w);
    assert_int_equal(v.n, 4);
    assert_ok(kvp_seq_invalidate(w.cache, seq, 4, NULL, 0, NULL));
    follow(&v, &w);
    assert_int_equal(v.n, 2);
    assert_true(find_item(&v, &chain[1], KVP_DEVICE) < 2);
    assert_true(find_item(&v, &chain[1], KVP_HOST) < 2);
    expect_snapshot(&v, &w, 1);
}

TEST(test_a_reader_that_fell_behind_goes_on_from_a_snapshot)
{
    kvp_config config = events_config(5, 3);
    config.max_events = 8;
    scoped_world w = make_world(&config);
    kvp_event events[16];
    uint32_t n;
    uint64_t number;
    struct view v = {.next = 1};
    for (int32_t i = 0; i < 5; i++)
        leave_cached(&w, ints(100 * i), 8);
    assert_status(KVP_E_BEHIND, kvp_events_read(w.cache, v.next, events, 16, NULL, &n));
    assert_ok(kvp_events_snapshot(w.cache, events, 16, NULL, &n, &number));
    for (uint32_t i = 0; i < n; i++)
        if (events[i].position == 0 || root_of(&v, &events[i].parent) != NULL)
            apply(&v, &events[i]);
    v.next = number + 1;
    assert_int_equal(v.n, n);
    leave_cached(&w, ints(500), 4);
    follow(&v, &w);
    expect_snapshot(&v, &w, 1);
}

/* What is restored is stored: a reader of the new cache has the set of the old one. */
TEST(test_readers_are_told_what_is_restored)
{
    const kvp_config config = events_config(5, 3);
    scoped_world w = make_world(&config);
    static struct view v;
    static struct view other;
    v.next = other.next = 1;
    for (int32_t i = 0; i < 5; i++) {
        leave_cached(&w, ints(100 * i), 8);
        drop_plan(&w);
        follow(&v, &w);
    }
    snap s = snap_of(w.cache, NULL);
    world restored = {0};
    assert_ok(kvp_cache_create(&config, NULL, 0, &restored.cache));
    assert_ok(snap_load(&s, restored.cache, NULL));
    follow(&other, &restored);
    expect_snapshot(&other, &restored, 1);
    assert_int_equal(other.n, v.n);
    for (uint32_t i = 0; i < v.n; i++)
        assert_true(find_item(&other, &v.items[i].hash, v.items[i].tier) < other.n);
    assert_true(v.n > 5);
    kvp_cache_destroy(restored.cache);
    snap_drop(&s);
}

/* --------------------------------------------------------------------------------------- random */

struct drawn {
    world w;
    uint64_t state;
    kvp_seq seqs[4]; /* 0: none */
    int invalidates;
};

static void open_drawn(struct drawn *d, kvp_seq *seq)
{
    /* Few beginnings, so that prefixes meet and part. */
    kvp_prompt prompt = prompt_of(ints((int32_t)draw(&d->state, 3) * 100), 1 + draw(&d->state, 16));
    if (draw(&d->state, 4) == 0)
        prompt.flags = KVP_OPEN_NO_MATCH;
    if (kvp_seq_open(d->w.cache, d->w.ns, &prompt, seq, NULL) != KVP_OK)
        seq->bits = 0;
}

static void use_drawn(struct drawn *d, kvp_seq *seq)
{
    kvp_cache *cache = d->w.cache;
    const uint32_t tokens = info_of(&d->w, *seq).n_tokens;
    const uint32_t at = draw(&d->state, tokens + 1);
    switch (draw(&d->state, 8)) {
    case 0: (void)kvp_seq_swap_out(cache, seq, 1, NULL); break;
    case 1: (void)kvp_seq_swap_in(cache, seq, 1, 1, NULL); break;
    case 2: (void)kvp_seq_extend(cache, *seq, ints((int32_t)tokens), 3, 0); break;
    case 3: (void)kvp_seq_truncate(cache, *seq, at, NULL); break;
    case 4:
        if (d->invalidates)
            assert_int_not_equal(kvp_seq_invalidate(cache, *seq, at, NULL, 0, NULL), KVP_E_ARG);
        break;
    case 5:
        close_seq(&d->w, *seq);
        seq->bits = 0;
        break;
    default: (void)kvp_seq_commit(cache, *seq, tokens); break;
    }
}

TEST(test_whoever_applies_the_events_has_the_set)
{
    for (uint32_t turn = 0; turn < 16; turn++) {
        static struct view v;
        kvp_config config = tiers_config(4, turn % 2 ? 4 : 2, 6, turn % 4 < 2 ? 4 : 0);
        config.commit_policy = turn % 8 < 4 ? KVP_ADOPT : KVP_KEEP;
        config.max_events = 256;
        struct drawn d = {.w = make_world(&config), .state = turn, .invalidates = turn < 8};
        memset(&v, 0, sizeof(v));
        v.next = 1;
        for (int i = 0; i < 6000; i++) {
            kvp_seq *seq = &d.seqs[draw(&d.state, 4)];
            const uint32_t rare = draw(&d.state, 300);
            if (rare == 0) {
                assert_ok(kvp_cache_reset(d.w.cache));
                memset(d.seqs, 0, sizeof(d.seqs));
            } else if (rare < 4) {
                assert_ok(kvp_ns_flush(d.w.cache, d.w.ns));
            } else if (seq->bits == 0) {
                open_drawn(&d, seq);
            } else {
                use_drawn(&d, seq);
            }
            drop_plan(&d.w);
            follow(&v, &d.w);
            expect_snapshot(&v, &d.w, !d.invalidates);
        }
        assert_true(v.next > 400);
        end_world(&d.w);
    }
}

TEST_MAIN(NULL, NULL)
