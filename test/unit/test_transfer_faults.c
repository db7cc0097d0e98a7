/* The n-th message, lend, post or take goes wrong, for every n and on either side; the n-th
 * allocation fails. What is complete is right; what is not leaves the cache as it was. */
#include "guarded.h"
#include "transfer_world.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------- allocations */

static size_t fail_at = SIZE_MAX; /* which request, from 0 */
static size_t n_requests;
static long n_allocated;

static int is_granted(void)
{
    const int granted = n_requests++ != fail_at;
    n_allocated += granted;
    return granted;
}

void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return is_granted() ? guarded_take(bytes) : NULL;
}

void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    void *memory = is_granted() ? guarded_take(n * bytes) : NULL;
    return memory ? memset(memory, 0, n * bytes) : NULL;
}

void __wrap_free(void *memory);
void __wrap_free(void *memory)
{
    n_allocated -= memory != NULL;
    guarded_free(memory);
}

TEST(the_nth_allocation_fails)
{
    const place_shape shape = small_place();
    scoped_place p = make_place(&shape);
    const kvp_transfer_config config = transfer_config_of(&p);
    for (int what = 0; what < 3; what++) {
        kvp_status status = KVP_E_NO_MEMORY;
        size_t n = 0;
        for (; status != KVP_OK; n++) {
            const long before = n_allocated;
            kvp_receiver *receiver = NULL;
            kvp_sender *sender = NULL;
            kvp_loopback *loopback = NULL;
            kvp_link ends[3] = {{0}};
            n_requests = 0;
            fail_at = n;
            status = what == 0   ? kvp_receiver_create(&config, &receiver)
                     : what == 1 ? kvp_sender_create(&config, &sender)
                                 : kvp_loopback_create(4096, 2, &loopback, ends);
            fail_at = SIZE_MAX;
            if (status != KVP_OK)
                assert_int_equal(status, KVP_E_NO_MEMORY);
            assert_true(status == KVP_OK || (!receiver && !sender && !loopback));
            assert_null(ends[2].lend);
            kvp_receiver_destroy(receiver);
            kvp_sender_destroy(sender);
            kvp_loopback_destroy(loopback);
            assert_int_equal(n_allocated, before);
        }
        assert_true(n >= 4);
    }
}

/* ---------------------------------------------------------------------------------- messages */

enum { N_TOKENS = 19, CACHED = 4 };

static pair make_small(void)
{
    const place_shape shape = small_place();
    return make_pair(&shape, &shape, 3);
}

static void run(pair *p)
{
    open_both(p, N_TOKENS, CACHED);
    reserve(p);
    watch_place(&p->b);
    prefill(p, (kvp_range){0, 7});
    mark(p);
    progress_both(p, 1);
    for (uint32_t from = 7; from < N_TOKENS; from += 4) {
        prefill(p, (kvp_range){from, from + 4});
        progress_both(p, 1);
    }
    progress_both(p, 10);
}

/* Whoever has no end by now gives up; then everything must be in order. 1: it went well. */
static int settle(pair *p)
{
    if (info_a(p).state < KVP_TRANSFER_COMPLETE)
        assert_ok(kvp_sender_abort(p->sender, p->id_a, KVP_E_PEER));
    if (info_b(p).state < KVP_TRANSFER_COMPLETE)
        assert_ok(kvp_receiver_abort(p->receiver, p->id_b, KVP_E_PEER));
    const int complete = info_b(p).state == KVP_TRANSFER_COMPLETE;
    assert_true(complete || info_a(p).state == KVP_TRANSFER_FAILED);
    assert_nothing_else_changed(&p->b, p->seq_b, (kvp_range){CACHED, N_TOKENS});
    assert_int_equal(info_of(&p->b.w, p->seq_b).computed_tokens, CACHED);
    assert_int_equal(match(&p->b.w, ints(1), N_TOKENS).hit_tokens, CACHED);
    if (complete) {
        assert_true(has_kv(&p->b, p->seq_b, (kvp_range){0, N_TOKENS}));
        assert_ok(kvp_seq_commit(p->b.w.cache, p->seq_b, N_TOKENS));
    } else if (draw(&(uint64_t){p->faults[0].n_lends}, 2)) {
        /* Computed here instead. */
        write_kv(&p->b, p->seq_b, (kvp_range){CACHED, N_TOKENS}, KVP_LAYERS_ALL);
        assert_ok(kvp_seq_commit(p->b.w.cache, p->seq_b, N_TOKENS));
    }
    assert_ok(kvp_sender_close(p->sender, p->id_a));
    assert_ok(kvp_receiver_close(p->receiver, p->id_b));
    return complete && kvp_cache_check(p->b.w.cache, 3, NULL) == KVP_OK;
}

TEST(the_nth_message_goes_wrong)
{
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t kind = FAULT_NONE; kind < FAULTS; kind++) {
            uint32_t n_happened = 0, n_failed = 0;
            int happened = kind != FAULT_CALL;
            for (uint32_t n = 1; happened; n++) {
                scoped_pair p = make_small();
                harm_side(&p, side, kind, n);
                run(&p);
                happened = p.faults[side].happened;
                n_happened += (uint32_t)happened;
                const int well = settle(&p);
                n_failed += (uint32_t)!well;
                if (!happened || kind == FAULT_AGAIN)
                    assert_true(well);
            }
            const int does_no_harm = kind == FAULT_NONE || kind == FAULT_AGAIN;
            assert_true(does_no_harm || kind == FAULT_CALL || n_happened > 0);
            /* The sender's messages all count; without the answer the receiver still has its KV. */
            if (side == 0 && !does_no_harm && kind != FAULT_CALL)
                assert_true(n_failed > 0);
            print_message("side %u, fault %u: %u runs, %u failed\n", side, kind, n_happened,
                          n_failed);
        }
    }
}

/* The other side is gone, at each message: the links say so, in the order in which they notice. */
static void cut_it(void *context)
{
    cut_link(context);
}

TEST(a_peer_that_is_gone)
{
    for (uint32_t side = 0; side < 2; side++) {
        int happened = 1;
        uint32_t n_failed = 0;
        for (uint32_t n = 1; happened; n++) {
            scoped_pair p = make_small();
            harm_side(&p, side, FAULT_CALL, n);
            p.faults[side].call = cut_it;
            p.faults[side].context = &p;
            run(&p);
            happened = p.faults[side].happened;
            if (happened) {
                /* Nobody waits for anything any more, but a receiver that never heard of it. */
                if (info_a(&p).state == KVP_TRANSFER_COMPLETE) {
                    assert_non_null(p.shm[0]); /* cut while its peer goes on: the answer arrives */
                    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
                } else {
                    assert_fields(info_a(&p), state, KVP_TRANSFER_FAILED, status, KVP_E_PEER);
                }
                assert_true(info_b(&p).state >= KVP_TRANSFER_COMPLETE || (side == 0 && n == 1));
            }
            n_failed += (uint32_t)!settle(&p);
        }
        assert_true(n_failed > 0 || side == 1);
    }
}

/* As many as there are places: nothing behind them is touched. */
TEST(all_places_at_once)
{
    enum { N = 3, TOKENS = 16 };
    scoped_pair p = make_small();
    kvp_seq a[N], b[N];
    for (uint32_t i = 0; i < N; i++) {
        open_both(&p, TOKENS, 0);
        reserve(&p);
        mark(&p);
        prefill(&p, (kvp_range){0, TOKENS});
        a[i] = p.seq_a, b[i] = p.seq_b;
    }
    const kvp_receive receive = receive_of(&p);
    const kvp_send send = send_of(&p);
    assert_status(KVP_E_STATE, kvp_receiver_reserve(p.receiver, &receive, p.ticket, sizeof p.ticket,
                                                    &p.n_ticket, &p.id_b));
    assert_status(KVP_E_STATE, kvp_sender_mark(p.sender, &send, &p.id_a));
    progress_both(&p, 12);
    for (uint64_t nth = 0; nth <= N + 1; nth += N + 1) { /* no place has this number */
        kvp_transfer_info info;
        const uint64_t id = UINT64_C(1) << 32 | nth;
        assert_status(KVP_E_HANDLE, kvp_receiver_info_get(p.receiver, id, &info));
        assert_status(KVP_E_HANDLE, kvp_sender_info_get(p.sender, id, &info));
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_true(has_kv(&p.b, b[i], (kvp_range){0, TOKENS}));
        close_seq(&p.a.w, a[i]);
        close_seq(&p.b.w, b[i]);
    }
    p.seq_a.bits = p.seq_b.bits = 0;
}

/* A side ends, and its process with it, at each call of progress: nothing of the other is held. */
TEST(a_side_that_goes_at_any_time)
{
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t rounds = 0; rounds < 10; rounds++) {
            const place_shape shape = small_place();
            scoped_pair p = make_pair(&shape, &shape, 2);
            open_both(&p, N_TOKENS, CACHED);
            reserve(&p);
            watch_place(&p.b);
            prefill(&p, (kvp_range){0, N_TOKENS});
            mark(&p);
            progress_both(&p, rounds);
            if (side == 0) {
                kvp_sender_destroy(p.sender);
                p.sender = NULL;
            } else {
                kvp_receiver_destroy(p.receiver);
                p.receiver = NULL;
            }
            cut_link(&p);
            if (side == 0) {
                assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
                if (info_b(&p).state == KVP_TRANSFER_WAITING)
                    assert_ok(kvp_receiver_abort(p.receiver, p.id_b, KVP_E_PEER));
                assert_true(info_b(&p).state >= KVP_TRANSFER_COMPLETE);
                if (info_b(&p).state == KVP_TRANSFER_COMPLETE)
                    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, N_TOKENS}));
                assert_ok(kvp_receiver_close(p.receiver, p.id_b));
            } else {
                assert_ok(kvp_sender_progress(p.sender, NULL));
                assert_true(info_a(&p).state >= KVP_TRANSFER_COMPLETE);
                assert_ok(kvp_sender_close(p.sender, p.id_a));
            }
            assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){CACHED, N_TOKENS});
            assert_int_equal(info_of(&p.b.w, p.seq_b).computed_tokens, CACHED);
        }
    }
}

/* Links, sides, memories and caches. */
TEST(what_is_taken_is_given_back)
{
    const size_t before = guarded_held();
    pair p = make_small();
    run(&p);
    assert_true(settle(&p));
    end_pair(&p);
    assert_int_equal(guarded_held(), before);
}

TEST_MAIN(NULL, NULL)
