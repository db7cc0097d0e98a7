/* Links over UCX, both ends in one process: a transfer over them, and arguments. */
#define _POSIX_C_SOURCE 200809L

#include "transfer_world.h"
#include "ucx_way.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpager/ucx/link.h>

typedef struct ucx_pair {
    kvp_ucx *ucx[2];
    kvp_ucx_link *links[2];
    kvp_link ends[2];
    uint8_t cards[2][KVP_UCX_CARD_MAX];
    size_t n[2];
} ucx_pair;

static ucx_pair connected(size_t max_a, size_t max_b)
{
    ucx_pair u = {0};
    kvp_ucx_config config;
    for (int i = 0; i < 2; i++) {
        kvp_ucx_config_init(&config);
        config.max_message = i == 0 ? max_a : max_b;
        config.n_messages = 3;
        assert_ok(kvp_ucx_create(&config, &u.ucx[i]));
        assert_ok(kvp_ucx_open(u.ucx[i], u.cards[i], KVP_UCX_CARD_MAX, &u.n[i], &u.links[i]));
    }
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_ucx_connect(u.links[i], u.cards[1 - i], u.n[1 - i], &u.ends[i]));
    return u;
}

static void end_ucx(ucx_pair *u)
{
    for (int i = 0; i < 2; i++) {
        kvp_ucx_close(u->links[i]);
        kvp_ucx_destroy(u->ucx[i]);
    }
}

static void put(const kvp_link *end, const uint8_t *bytes, size_t n)
{
    void *buffer;
    kvp_status status;
    while ((status = end->lend(end->context, n, &buffer)) == KVP_E_AGAIN)
        end->progress(end->context);
    assert_ok(status);
    memcpy(buffer, bytes, n);
    assert_ok(end->post(end->context, n));
}

/* Small and large messages mixed: in order, whole, more than there are buffers. */
static void messages_in_order(void **state)
{
    (void)state;
    enum { LARGE = 1 << 20, N = 60 };
    ucx_pair u = connected(LARGE, LARGE);
    uint8_t *bytes = malloc(LARGE);
    assert_non_null(bytes);
    uint32_t n_sent = 0, n_taken = 0;
    while (n_taken < N) {
        void *buffer;
        const void *taken;
        size_t n_bytes = n_sent % 3 == 0 ? LARGE : 1 + n_sent * 37;
        if (n_sent < N && u.ends[0].lend(u.ends[0].context, n_bytes, &buffer) == KVP_OK) {
            memset(buffer, (int)n_sent, n_bytes);
            assert_ok(u.ends[0].post(u.ends[0].context, n_bytes));
            n_sent++;
        }
        u.ends[0].progress(u.ends[0].context);
        u.ends[1].progress(u.ends[1].context);
        const kvp_status status = u.ends[1].take(u.ends[1].context, &taken, &n_bytes);
        if (status == KVP_E_AGAIN)
            continue;
        assert_ok(status);
        assert_int_equal(n_bytes, n_taken % 3 == 0 ? LARGE : 1 + n_taken * 37);
        memset(bytes, (int)n_taken, n_bytes);
        assert_memory_equal(taken, bytes, n_bytes);
        u.ends[1].give_back(u.ends[1].context);
        n_taken++;
    }
    free(bytes);
    end_ucx(&u);
}

static void a_transfer(void **state)
{
    (void)state;
    const place_shape shape = small_place();
    pair p = make_pair(&shape, &shape, 1);
    ucx_pair u = connected(2048, 1500);
    assert_int_equal(u.ends[0].max_message, 1500);
    assert_int_equal(u.ends[1].max_message, 1500);
    assert_ok(kvp_sender_detach(p.sender, p.link_a));
    assert_ok(kvp_receiver_detach(p.receiver, p.link_b));
    assert_ok(kvp_sender_attach(p.sender, &u.ends[0], &p.link_a));
    assert_ok(kvp_receiver_attach(p.receiver, &u.ends[1], &p.link_b));
    open_both(&p, 60, 0);
    reserve(&p);
    prefill(&p, (kvp_range){0, 60});
    mark(&p);
    while (info_a(&p).state < KVP_TRANSFER_COMPLETE)
        progress_both(&p, 1);
    assert_int_equal(info_a(&p).state, KVP_TRANSFER_COMPLETE);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 60}));
    kvp_status status;
    while ((status = kvp_ucx_flush(u.links[1])) == KVP_E_AGAIN)
        u.ends[0].progress(u.ends[0].context);
    assert_ok(status);
    end_pair(&p);
    end_ucx(&u);
}

/* What waits when an end is closed does not come; a new end gets nothing of an old one's. */
static void ends_that_are_closed(void **state)
{
    (void)state;
    ucx_pair u = connected(4096, 4096);
    const void *taken;
    size_t n;
    put(&u.ends[0], (const uint8_t *)"old", 3);
    kvp_ucx_close(u.links[1]);
    u.links[1] = NULL;
    uint8_t card[2][KVP_UCX_CARD_MAX];
    size_t n_card[2];
    kvp_ucx_link *links[2];
    kvp_link ends[2];
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_ucx_open(u.ucx[i], card[i], sizeof card[i], &n_card[i], &links[i]));
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_ucx_connect(links[i], card[1 - i], n_card[1 - i], &ends[i]));
    put(&ends[0], (const uint8_t *)"fresh", 5);
    kvp_status status;
    while ((status = ends[1].take(ends[1].context, &taken, &n)) == KVP_E_AGAIN) {
        ends[0].progress(ends[0].context);
        ends[1].progress(ends[1].context);
    }
    assert_ok(status);
    assert_int_equal(n, 5);
    assert_memory_equal(taken, "fresh", 5);
    kvp_ucx_close(links[0]);
    end_ucx(&u); /* links[1] is still open */
}

static void arguments(void **state)
{
    (void)state;
    ucx_pair u = connected(4096, 4096);
    kvp_ucx *ucx;
    kvp_ucx_link *link;
    kvp_link end;
    size_t n;
    uint8_t card[KVP_UCX_CARD_MAX];
    for (int wrong = 0; wrong < 6; wrong++) {
        kvp_ucx_config config;
        kvp_ucx_config_init(&config);
        config.struct_size -= wrong == 0;
        config.max_message = wrong == 1 ? 1023 : wrong == 2 ? (1u << 30) + 1 : 4096;
        config.n_messages = wrong == 3 ? 0 : wrong == 4 ? 1025 : 1;
        config.peers = wrong == 5 ? 2 : KVP_UCX_ANY;
        assert_status(KVP_E_ARG, kvp_ucx_create(&config, &ucx));
    }
    assert_status(KVP_E_ARG, kvp_ucx_create(NULL, NULL));
    assert_status(KVP_E_ARG, kvp_ucx_register(u.ucx[0], NULL, 1));
    assert_status(KVP_E_ARG, kvp_ucx_register(u.ucx[0], card, 0));
    assert_ok(kvp_ucx_register(u.ucx[0], card, sizeof card));
    assert_status(KVP_E_TOO_SMALL, kvp_ucx_open(u.ucx[0], card, 10, &n, &link));
    assert_true(n > 10 && n <= KVP_UCX_CARD_MAX);
    assert_status(KVP_E_STATE, kvp_ucx_connect(u.links[0], u.cards[1], u.n[1], &end));
    assert_ok(kvp_ucx_open(u.ucx[0], card, sizeof card, &n, &link));
    assert_status(KVP_E_STATE, kvp_ucx_flush(link));
    for (size_t i = 0; i < u.n[1]; i++) {
        uint8_t bad[KVP_UCX_CARD_MAX];
        memcpy(bad, u.cards[1], u.n[1]);
        bad[i] ^= 4;
        assert_status(KVP_E_FORMAT, kvp_ucx_connect(link, bad, u.n[1], &end));
        assert_status(KVP_E_FORMAT, kvp_ucx_connect(link, u.cards[1], i, &end));
    }
    assert_status(KVP_E_ARG, kvp_ucx_connect(NULL, u.cards[1], u.n[1], &end));
    assert_status(KVP_E_ARG, kvp_ucx_flush(NULL));
    kvp_ucx_close(NULL);
    kvp_ucx_destroy(NULL);
    end_ucx(&u);
}

int main(void)
{
    (void)setenv("UCX_TLS", "posix,self", 1);
    if (!ucx_has_way("posix,self", KVP_UCX_ANY)) {
        puts("skipped: UCX has no shared memory here");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_in_order),
        cmocka_unit_test(a_transfer),
        cmocka_unit_test(ends_that_are_closed),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
