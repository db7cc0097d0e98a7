/* Counters beside the cache's near their ends: of requests, worker messages and transfers. The
 * cache's own are in test_cache_start.c. */
#include "sched/sched_state.h"
#include "wire/wire_send.h"
#include "transfer/side.h"

#include "sched_world.h"
#include "start.h"
#include "transfer_world.h"
#include "wire_drive.h"

#if KVP_CHECK >= 1

static const uint64_t corners[] = {0x7FFFFFFD, 0xFFFFFFFD, ((uint64_t)1 << 63) - 3};

enum { N_CORNERS = sizeof(corners) / sizeof(*corners) };

/* ------------------------------------------------------------------------------------ requests */

/* Every place is used up once; no handle comes twice, and none finds what came later. */
TEST(test_a_request_place_is_retired_before_its_generation_wraps)
{
    enum { PLACES = 3, USES = 2 };
    const kvp_config config = config_of(4, 4, 15);
    kvp_sched_config sched_config = sched_config_of(2, 64);
    kvp_request seen[PLACES * USES], none;
    kvp_request_info info;
    sched_config.max_requests = PLACES;
    sched_config.max_samples = PLACES;
    sched_config.max_tries = 1;
    scoped_sched_world s = make_sched_world(&config, &sched_config);
    for (uint32_t i = 0; i < PLACES; i++)
        s.sched->requests[i].generation = KVPI_LAST_GENERATION - USES;
    for (uint32_t n = 0; n < PLACES * USES; n++) {
        seen[n] = submit(&s, 1, 6, 3);
        for (uint32_t k = 0; k < n; k++) {
            assert_true(seen[k].bits != seen[n].bits);
            assert_status(KVP_E_HANDLE, kvp_request_info_get(s.sched, seen[k], &info));
        }
        assert_ok(kvp_sched_abort(s.sched, seen[n]));
        check_sched(&s);
    }
    assert_status(KVP_E_NO_SEQS, try_submit(&s, 1, 6, 3, &none, NULL));
    for (uint32_t k = 0; k < PLACES * USES; k++)
        assert_status(KVP_E_HANDLE, kvp_sched_abort(s.sched, seen[k]));
}

/* Who came first is admitted first, over every corner. */
TEST(test_requests_are_admitted_as_they_come)
{
    for (uint32_t c = 0; c < N_CORNERS; c++) {
        const kvp_config config = config_of(4, 4, 63);
        const kvp_sched_config sched_config = sched_config_of(1, 64);
        assert_true(start_at(corners[c]));
        sched_world s = make_sched_world(&config, &sched_config);
        kvp_request requests[6];
        for (int32_t i = 0; i < 6; i++)
            requests[i] = submit(&s, 100 * i, 6, 1);
        for (int i = 0; i < 6; i++) {
            const kvp_step step = make_step(&s);
            assert_fields(step, number, corners[c] + 1 + (uint64_t)i, n_admitted, 1);
            assert_int_equal(step.admitted[0].bits, requests[i].bits);
            (void)finish_step(&s, &step);
        }
        end_sched_world(&s);
        assert_true(start_at(0));
    }
}

/* ------------------------------------------------------------------------------ worker messages */

TEST(test_worker_messages_are_numbered_on)
{
    enum { MESSAGES = 40 };
    static driver d;
    for (uint32_t c = 0; c < N_CORNERS; c++) {
        kvp_wire_mirror_state at;
        kvp_wire_mirror *mirror;
        drive_begin(&d, 7 + c);
        kvpi_wire_start_at(d.sender, corners[c]);
        assert_ok(kvp_wire_mirror_create(&d.config, NULL, 0, &mirror));
        for (uint64_t i = 0; i < MESSAGES; i++) {
            drive_change(&d);
            drive_message(&d, i == 0 || i == 20);
            assert_ok(kvp_wire_mirror_apply(mirror, d.bytes, d.n_bytes, NULL));
            assert_status(KVP_E_STATE, kvp_wire_mirror_apply(mirror, d.bytes, d.n_bytes, NULL));
            assert_ok(kvp_wire_mirror_info_get(mirror, &at));
            assert_int_equal(at.number, corners[c] + 1 + i);
            assert_int_equal(drive_sum_mirror(mirror, &d.config), drive_sum_cache(&d));
        }
        drive_change(&d); /* one is lost */
        drive_message(&d, 0);
        drive_change(&d);
        drive_message(&d, 0);
        assert_status(KVP_E_STATE, kvp_wire_mirror_apply(mirror, d.bytes, d.n_bytes, NULL));
        drive_message(&d, 1);
        assert_ok(kvp_wire_mirror_apply(mirror, d.bytes, d.n_bytes, NULL));
        kvp_wire_mirror_destroy(mirror);
        drive_end(&d);
    }
}

/* ----------------------------------------------------------------------------------- transfers */

/* A transfer that both sides give up. */
static void pass_by(pair *p)
{
    reserve(p);
    mark(p);
    assert_ok(kvp_sender_abort(p->sender, p->id_a, KVP_E_NO_SEQS));
    assert_ok(kvp_receiver_abort(p->receiver, p->id_b, KVP_E_NO_SEQS));
    progress_both(p, 2);
    assert_ok(kvp_sender_close(p->sender, p->id_a));
    assert_ok(kvp_receiver_close(p->receiver, p->id_b));
}

/* Three places on each side, each with two ids left: no id comes twice. */
TEST(test_a_transfer_place_is_retired_before_its_generation_wraps)
{
    enum { USES = 2, ALL = 3 * USES };
    const place_shape shape = small_place();
    uint64_t seen[2][ALL], id;
    size_t n_bytes;
    scoped_pair p = make_pair(&shape, &shape, 32);
    open_both(&p, 9, 0);
    kvpi_sender_start_at(p.sender, KVPI_LAST_TRANSFER - USES);
    kvpi_receiver_start_at(p.receiver, KVPI_LAST_TRANSFER - USES);
    for (uint32_t n = 0; n < ALL; n++) {
        kvp_transfer_info info;
        pass_by(&p);
        seen[0][n] = p.id_a;
        seen[1][n] = p.id_b;
        for (uint32_t k = 0; k < n; k++) {
            assert_true(seen[0][k] != p.id_a && seen[1][k] != p.id_b);
            assert_status(KVP_E_HANDLE, kvp_sender_info_get(p.sender, seen[0][k], &info));
            assert_status(KVP_E_HANDLE, kvp_receiver_info_get(p.receiver, seen[1][k], &info));
        }
    }
    const kvp_receive receive = receive_of(&p);
    const kvp_send send = send_of(&p);
    assert_status(KVP_E_AGAIN, kvp_receiver_reserve(p.receiver, &receive, p.ticket, sizeof p.ticket,
                                                    &n_bytes, &id));
    assert_status(KVP_E_AGAIN, kvp_sender_mark(p.sender, &send, &id));
    p.id_a = p.id_b = 0;
}

/* KV moves under the last id of a place as under any. */
TEST(test_the_last_transfer_of_a_place_is_complete)
{
    for (uint64_t start = KVPI_LAST_TRANSFER - 2; start < KVPI_LAST_TRANSFER; start++) {
        const place_shape shape = small_place();
        scoped_pair p = make_pair(&shape, &shape, 32);
        open_both(&p, 9, 0);
        kvpi_sender_start_at(p.sender, start);
        kvpi_receiver_start_at(p.receiver, start);
        reserve(&p);
        mark(&p);
        assert_int_equal(p.id_a >> 32, start + 1);
        prefill(&p, (kvp_range){0, 9});
        progress_both(&p, 5);
        assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
        assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
        assert_true(same_kv(&p.a, p.seq_a, &p.b, p.seq_b, (kvp_range){0, 9}));
    }
}

TEST_MAIN(NULL, NULL)

#else

/* A library without checks has no hooks. */
int main(void)
{
    return 0;
}

#endif
