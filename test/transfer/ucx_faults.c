/* ucx_faults: each request that a link over UCX makes, for memory and of UCX, is refused once, for
 * every n. The link's own code is linked into this program, so that its requests alone are counted:
 * UCX asks the system for memory by itself, in a library of its own, and nobody is told.
 *
 *   opening   the call gives the status that link.h has for it, keeps nothing, and works when it is
 *             made again
 *   messages  the link breaks, and says so to whoever uses it; closing it gives everything back
 */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <kvpager/ucx/link.h>
#include <ucp/api/ucp.h>

#include "ucx_way.h"

/* What is refused, and what the call gives then. */
#define SEAMS(X)                                                                                   \
    X(calloc, KVP_E_NO_MEMORY)                                                                     \
    X(aligned_alloc, KVP_E_NO_MEMORY)                                                              \
    X(config_read, KVP_E_IO)                                                                       \
    X(init, KVP_E_IO)                                                                              \
    X(worker_create, KVP_E_IO)                                                                     \
    X(mem_map, KVP_E_IO)                                                                           \
    X(get_address, KVP_E_IO)                                                                       \
    X(ep_create, KVP_E_PEER)                                                                       \
    X(recv, KVP_E_PEER)                                                                            \
    X(send, KVP_E_PEER)                                                                            \
    X(flush, KVP_E_PEER)

#define SEAM_ID(name, status)     SEAM_##name,
#define SEAM_NAME(name, status)   #name,
#define SEAM_STATUS(name, status) status,
enum { SEAMS(SEAM_ID) N_SEAMS };
static const char *const seam_names[] = {SEAMS(SEAM_NAME)};
static const kvp_status seam_statuses[] = {SEAMS(SEAM_STATUS)};

static uint32_t n_asked[N_SEAMS];
static uint32_t refuse_seam, refuse_nth; /* counted from 1; 0: none */
static uint32_t n_refused;
static int64_t n_kept; /* pieces of memory, and objects of UCX */

static int refuses(uint32_t seam)
{
    const int refused = ++n_asked[seam] == refuse_nth && seam == refuse_seam;
    n_refused += (uint32_t)refused;
    return refused;
}

/* ------------------------------------------------------------------------ what the linker wraps */

#define KEEPS(seam, call, fails)                                                                   \
    if (refuses(SEAM_##seam))                                                                      \
        return fails;                                                                              \
    n_kept++;                                                                                      \
    return call

void *__real_calloc(size_t n, size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes)
{
    KEEPS(calloc, __real_calloc(n, n_bytes), NULL);
}

void *__real_aligned_alloc(size_t align, size_t n_bytes);
void *__wrap_aligned_alloc(size_t align, size_t n_bytes);
void *__wrap_aligned_alloc(size_t align, size_t n_bytes)
{
    KEEPS(aligned_alloc, __real_aligned_alloc(align, n_bytes), NULL);
}

void __real_free(void *memory);
void __wrap_free(void *memory);
void __wrap_free(void *memory)
{
    n_kept -= memory != NULL;
    __real_free(memory);
}

ucs_status_t __real_ucp_config_read(const char *prefix, const char *file, ucp_config_t **out);
ucs_status_t __wrap_ucp_config_read(const char *prefix, const char *file, ucp_config_t **out);
ucs_status_t __wrap_ucp_config_read(const char *prefix, const char *file, ucp_config_t **out)
{
    KEEPS(config_read, __real_ucp_config_read(prefix, file, out), UCS_ERR_NO_MEMORY);
}

void __real_ucp_config_release(ucp_config_t *config);
void __wrap_ucp_config_release(ucp_config_t *config);
void __wrap_ucp_config_release(ucp_config_t *config)
{
    n_kept--;
    __real_ucp_config_release(config);
}

/* ucp_init is inline, and calls this. */
ucs_status_t __real_ucp_init_version(unsigned major, unsigned minor, const ucp_params_t *params,
                                     const ucp_config_t *config, ucp_context_h *out);
ucs_status_t __wrap_ucp_init_version(unsigned major, unsigned minor, const ucp_params_t *params,
                                     const ucp_config_t *config, ucp_context_h *out);
ucs_status_t __wrap_ucp_init_version(unsigned major, unsigned minor, const ucp_params_t *params,
                                     const ucp_config_t *config, ucp_context_h *out)
{
    KEEPS(init, __real_ucp_init_version(major, minor, params, config, out), UCS_ERR_NO_MEMORY);
}

void __real_ucp_cleanup(ucp_context_h context);
void __wrap_ucp_cleanup(ucp_context_h context);
void __wrap_ucp_cleanup(ucp_context_h context)
{
    n_kept--;
    __real_ucp_cleanup(context);
}

ucs_status_t __real_ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
                                      ucp_worker_h *out);
ucs_status_t __wrap_ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
                                      ucp_worker_h *out);
ucs_status_t __wrap_ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
                                      ucp_worker_h *out)
{
    KEEPS(worker_create, __real_ucp_worker_create(context, params, out), UCS_ERR_NO_MEMORY);
}

void __real_ucp_worker_destroy(ucp_worker_h worker);
void __wrap_ucp_worker_destroy(ucp_worker_h worker);
void __wrap_ucp_worker_destroy(ucp_worker_h worker)
{
    n_kept--;
    __real_ucp_worker_destroy(worker);
}

ucs_status_t __real_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                ucp_mem_h *out);
ucs_status_t __wrap_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                ucp_mem_h *out);
ucs_status_t __wrap_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                ucp_mem_h *out)
{
    KEEPS(mem_map, __real_ucp_mem_map(context, params, out), UCS_ERR_NO_MEMORY);
}

ucs_status_t __real_ucp_mem_unmap(ucp_context_h context, ucp_mem_h memory);
ucs_status_t __wrap_ucp_mem_unmap(ucp_context_h context, ucp_mem_h memory);
ucs_status_t __wrap_ucp_mem_unmap(ucp_context_h context, ucp_mem_h memory)
{
    n_kept--;
    return __real_ucp_mem_unmap(context, memory);
}

ucs_status_t __real_ucp_worker_get_address(ucp_worker_h worker, ucp_address_t **out, size_t *out_n);
ucs_status_t __wrap_ucp_worker_get_address(ucp_worker_h worker, ucp_address_t **out, size_t *out_n);
ucs_status_t __wrap_ucp_worker_get_address(ucp_worker_h worker, ucp_address_t **out, size_t *out_n)
{
    KEEPS(get_address, __real_ucp_worker_get_address(worker, out, out_n), UCS_ERR_NO_MEMORY);
}

void __real_ucp_worker_release_address(ucp_worker_h worker, ucp_address_t *address);
void __wrap_ucp_worker_release_address(ucp_worker_h worker, ucp_address_t *address);
void __wrap_ucp_worker_release_address(ucp_worker_h worker, ucp_address_t *address)
{
    n_kept--;
    __real_ucp_worker_release_address(worker, address);
}

ucs_status_t __real_ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params,
                                  ucp_ep_h *out);
ucs_status_t __wrap_ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params,
                                  ucp_ep_h *out);
ucs_status_t __wrap_ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *out)
{
    KEEPS(ep_create, __real_ucp_ep_create(worker, params, out), UCS_ERR_NO_MEMORY);
}

ucs_status_ptr_t __real_ucp_ep_close_nbx(ucp_ep_h endpoint, const ucp_request_param_t *param);
ucs_status_ptr_t __wrap_ucp_ep_close_nbx(ucp_ep_h endpoint, const ucp_request_param_t *param);
ucs_status_ptr_t __wrap_ucp_ep_close_nbx(ucp_ep_h endpoint, const ucp_request_param_t *param)
{
    n_kept--;
    return __real_ucp_ep_close_nbx(endpoint, param);
}

static void *no_memory(void)
{
    return (void *)(intptr_t)UCS_ERR_NO_MEMORY;
}

ucs_status_ptr_t __real_ucp_tag_recv_nbx(ucp_worker_h worker, void *buffer, size_t n, ucp_tag_t tag,
                                         ucp_tag_t mask, const ucp_request_param_t *param);
ucs_status_ptr_t __wrap_ucp_tag_recv_nbx(ucp_worker_h worker, void *buffer, size_t n, ucp_tag_t tag,
                                         ucp_tag_t mask, const ucp_request_param_t *param);
ucs_status_ptr_t __wrap_ucp_tag_recv_nbx(ucp_worker_h worker, void *buffer, size_t n, ucp_tag_t tag,
                                         ucp_tag_t mask, const ucp_request_param_t *param)
{
    return refuses(SEAM_recv) ? no_memory()
                              : __real_ucp_tag_recv_nbx(worker, buffer, n, tag, mask, param);
}

ucs_status_ptr_t __real_ucp_tag_send_nbx(ucp_ep_h endpoint, const void *buffer, size_t n,
                                         ucp_tag_t tag, const ucp_request_param_t *param);
ucs_status_ptr_t __wrap_ucp_tag_send_nbx(ucp_ep_h endpoint, const void *buffer, size_t n,
                                         ucp_tag_t tag, const ucp_request_param_t *param);
ucs_status_ptr_t __wrap_ucp_tag_send_nbx(ucp_ep_h endpoint, const void *buffer, size_t n,
                                         ucp_tag_t tag, const ucp_request_param_t *param)
{
    return refuses(SEAM_send) ? no_memory()
                              : __real_ucp_tag_send_nbx(endpoint, buffer, n, tag, param);
}

ucs_status_ptr_t __real_ucp_ep_flush_nbx(ucp_ep_h endpoint, const ucp_request_param_t *param);
ucs_status_ptr_t __wrap_ucp_ep_flush_nbx(ucp_ep_h endpoint, const ucp_request_param_t *param);
ucs_status_ptr_t __wrap_ucp_ep_flush_nbx(ucp_ep_h endpoint, const ucp_request_param_t *param)
{
    return refuses(SEAM_flush) ? no_memory() : __real_ucp_ep_flush_nbx(endpoint, param);
}

/* ---------------------------------------------------------------------------------------- a run */

typedef struct two_ends {
    kvp_ucx *ucx[2];
    kvp_ucx_link *links[2];
    kvp_link ends[2];
    uint8_t cards[2][KVP_UCX_CARD_MAX];
    size_t n[2];
    uint8_t memory[4096];
} two_ends;

/* A call that may be refused: with what its seam says, and nothing kept; then it works. */
#define CALL(call)                                                                                 \
    do {                                                                                           \
        const uint32_t before_ = n_refused;                                                        \
        const int64_t kept_ = n_kept;                                                              \
        kvp_status status_ = call;                                                                 \
        if (n_refused > before_ && refuse_seam < SEAM_recv) {                                      \
            assert_int_equal(status_, seam_statuses[refuse_seam]);                                 \
            assert_int_equal(n_kept, kept_);                                                       \
            status_ = call;                                                                        \
        }                                                                                          \
        assert_int_equal(status_, KVP_OK);                                                         \
    } while (0)

static void open_ends(two_ends *t)
{
    kvp_ucx_config config;
    kvp_ucx_config_init(&config);
    config.max_message = 1024;
    config.n_messages = 2;
    for (int i = 0; i < 2; i++) {
        CALL(kvp_ucx_create(&config, &t->ucx[i]));
        CALL(kvp_ucx_register(t->ucx[i], t->memory, sizeof t->memory));
        CALL(kvp_ucx_open(t->ucx[i], t->cards[i], KVP_UCX_CARD_MAX, &t->n[i], &t->links[i]));
    }
    for (int i = 0; i < 2; i++)
        CALL(kvp_ucx_connect(t->links[i], t->cards[1 - i], t->n[1 - i], &t->ends[i]));
}

static void progress(two_ends *t)
{
    for (int i = 0; i < 2; i++)
        t->ends[i].progress(t->ends[i].context);
}

/* A message from one end to the other. */
static kvp_status pass_on(two_ends *t, int from, uint32_t number)
{
    const kvp_link *out = &t->ends[from], *in = &t->ends[1 - from];
    void *buffer;
    const void *bytes;
    size_t n;
    kvp_status status;
    while ((status = out->lend(out->context, 4, &buffer)) == KVP_E_AGAIN)
        progress(t);
    if (status != KVP_OK)
        return status;
    memcpy(buffer, &number, 4);
    status = out->post(out->context, 4);
    if (status != KVP_OK)
        return status;
    while ((status = in->take(in->context, &bytes, &n)) == KVP_E_AGAIN)
        progress(t);
    if (status != KVP_OK)
        return status;
    assert_int_equal(n, 4);
    assert_memory_equal(bytes, &number, 4);
    in->give_back(in->context);
    return KVP_OK;
}

/* Until the peer has everything. */
static kvp_status flush(two_ends *t, int i)
{
    kvp_status status;
    while ((status = kvp_ucx_flush(t->links[i])) == KVP_E_AGAIN)
        progress(t);
    return status;
}

static kvp_status use(two_ends *t)
{
    kvp_status status = KVP_OK;
    for (uint32_t number = 0; number < 6 && status == KVP_OK; number++)
        status = pass_on(t, number % 2, number);
    for (int i = 0; i < 2 && status == KVP_OK; i++)
        status = flush(t, i);
    return status;
}

static void run(uint32_t seam, uint32_t nth)
{
    static two_ends t;
    memset(&t, 0, sizeof t);
    memset(n_asked, 0, sizeof n_asked);
    refuse_seam = seam;
    refuse_nth = nth;
    n_refused = 0;
    n_kept = 0;
    open_ends(&t);
    const kvp_status status = use(&t);
    assert_int_equal(status, nth > 0 && seam >= SEAM_recv ? seam_statuses[seam] : KVP_OK);
    assert_int_equal(n_refused, nth > 0);
    for (int i = 0; i < 2; i++) {
        kvp_ucx_close(t.links[i]);
        kvp_ucx_destroy(t.ucx[i]);
    }
    assert_int_equal(n_kept, 0);
}

static void every_request_is_refused_once(void **state)
{
    uint32_t n[N_SEAMS];
    (void)state;
    run(0, 0);
    memcpy(n, n_asked, sizeof n);
    for (uint32_t seam = 0; seam < N_SEAMS; seam++) {
        print_message("%s: %u\n", seam_names[seam], n[seam]);
        assert_true(n[seam] > 0);
        for (uint32_t nth = 1; nth <= n[seam]; nth++)
            run(seam, nth);
    }
}

int main(void)
{
    if (!ucx_has_way("posix,self", KVP_UCX_ANY)) {
        puts("skipped: UCX has no way from here to here");
        return 77;
    }
    (void)setenv("UCX_TLS", "posix,self", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_request_is_refused_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
