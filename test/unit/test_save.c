/* Snapshots in files: whatever happens while one is saved, there is the old one or the new one,
 * whole. On a simulated disk (disk.h) that is cut off and fails at every call. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/platform/save.h"
#include "saved.h"

#define PATH "/disk/" NAME

static kvp_status save_on(saved *s, disk *d, int *out_error)
{
    const kvp_snapshot_options options = saved_options(NULL);
    const struct kvpi_system system = disk_system(d);
    return kvpi_save_snapshot(s->w.cache, &options, PATH, &system, out_error);
}

/* Everything that a loss of power may leave. */
static void assert_left(const saved *s, const disk *d, bool may_be_old, bool may_be_new)
{
    for (unsigned happened = 0; happened < 1u << d->n_changes; happened++) {
        for (int content = 0; content < DISK_CONTENTS; content++) {
            disk_bytes left = disk_after(d, NAME, happened, content);
            const bool is_right =
                (may_be_old && is_same(&left, &s->old)) || (may_be_new && is_same(&left, &s->new));
            if (!is_right)
                fail_msg("call %d (%d): %zu bytes after changes %u, content %d", d->n_calls,
                         (int)d->last, left.n, happened, content);
            free(left.at);
        }
    }
}

/* Without a fault: so many calls. */
static int count_calls(saved *s)
{
    disk d = {0};
    disk_put(&d, NAME, &s->old, 0);
    assert_ok(save_on(s, &d, NULL));
    assert_left(s, &d, false, true);
    assert_null(disk_see(&d, PART));
    const int n = d.n_calls;
    disk_drop(&d);
    return n;
}

TEST(test_the_power_goes_at_any_call)
{
    scoped_saved s = make_saved();
    unsigned cut = 0;
    const int n = count_calls(&s);
    for (int at = 1; at <= n; at++) {
        for (int halves = 0; halves < 2; halves++) {
            disk d = {.cut_at = at, .halves = halves != 0};
            disk_put(&d, NAME, &s.old, 0);
            const kvp_status status = save_on(&s, &d, NULL);
            cut |= 1u << d.last;
            assert_left(&s, &d, status != KVP_OK, true);
            assert_true(status == KVP_OK || status == KVP_E_IO);
            assert_true(status == KVP_E_IO || at == n); /* only the folder's close is left */
            /* The process was killed, and the system goes on. */
            const disk_bytes *seen = disk_see(&d, NAME);
            assert_true(is_same(seen, &s.old) || is_same(seen, &s.new));
            disk_drop(&d);
        }
    }
    assert_int_equal(cut, (1u << DISK_CLOSE << 1) - 1 - (1u << DISK_REMOVE));
}

/* The call that fails, and what must come of it. */
static void check_fault(saved *s, int at, int n, int error)
{
    disk d = {.fail_at = at, .error = error};
    int said = -1;
    disk_put(&d, NAME, &s->old, 0);
    const kvp_status status = save_on(s, &d, &said);
    const bool again =
        (error == EINTR && d.last != DISK_KIND && d.last != DISK_RENAME && d.last != DISK_CLOSE) ||
        (error == 0 && d.last == DISK_WRITE);
    const bool is_last = at == n; /* the folder's close: all is done */
    if (again || is_last || (error == 0 && d.last != DISK_WRITE)) {
        assert_status(KVP_OK, status);
        assert_left(s, &d, false, true);
    } else {
        assert_status(KVP_E_IO, status);
        assert_int_equal(said, error);
        assert_left(s, &d, true, d.last == DISK_SYNC_FOLDER);
        assert_true(is_same(disk_see(&d, NAME), d.last == DISK_SYNC_FOLDER ? &s->new : &s->old));
    }
    assert_null(disk_see(&d, PART));
    disk_drop(&d);
}

TEST(test_any_call_fails)
{
    static const int errors[] = {EIO, ENOSPC, EINTR, EFBIG, 0};
    scoped_saved s = make_saved();
    const int n = count_calls(&s);
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        for (int at = 1; at <= n; at++)
            check_fault(&s, at, n, errors[i]);
}

TEST(test_there_was_nothing_before)
{
    scoped_saved s = make_saved();
    const int n = count_calls(&s);
    for (int at = 1; at <= n; at++) {
        disk d = {.cut_at = at};
        const kvp_status status = save_on(&s, &d, NULL);
        for (unsigned happened = 0; happened < 1u << d.n_changes; happened++) {
            disk_bytes left = disk_after(&d, NAME, happened, DISK_ZEROS);
            assert_true((left.at == NULL && status != KVP_OK) || is_same(&left, &s.new));
            free(left.at);
        }
        disk_drop(&d);
    }
}

/* What killed processes left behind is passed over, and stays. */
TEST(test_parts_of_others)
{
    scoped_saved s = make_saved();
    const disk_bytes other = {(uint8_t *)"another's", 9};
    disk d = {0};
    disk_put(&d, PART, &other, 0);
    disk_put(&d, NAME ".part-1", &other, 0);
    assert_ok(save_on(&s, &d, NULL));
    assert_true(is_same(disk_see(&d, NAME), &s.new));
    assert_true(is_same(disk_see(&d, PART), &other));
    assert_true(is_same(disk_see(&d, NAME ".part-1"), &other));
    assert_null(disk_see(&d, NAME ".part-2"));
    disk_drop(&d);
}

TEST(test_only_files_are_replaced)
{
    static const struct {
        int kind, error;
    } cases[] = {
        {KVPI_SYSTEM_FOLDER, EISDIR}, {KVPI_SYSTEM_LINK, ELOOP}, {KVPI_SYSTEM_OTHER, ENOTSUP}};
    scoped_saved s = make_saved();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        disk d = {0};
        int said = 0;
        disk_put(&d, NAME, NULL, cases[i].kind);
        assert_status(KVP_E_IO, save_on(&s, &d, &said));
        assert_int_equal(said, cases[i].error);
        assert_null(disk_see(&d, PART));
        assert_int_equal(d.n_changes, 0);
        disk_drop(&d);
    }
}

TEST(test_a_save_that_is_refused_changes_nothing)
{
    scoped_saved s = make_saved();
    disk d = {0};
    int fails = 1, said = -1;
    const struct kvpi_system system = disk_system(&d);
    kvp_snapshot_options options = saved_options(&fails);
    disk_put(&d, NAME, &s.old, 0);
    assert_status(KVP_E_IO, kvpi_save_snapshot(s.w.cache, &options, PATH, &system, &said));
    assert_int_equal(said, 0); /* the system said nothing: get failed */
    options.get = NULL;
    assert_status(KVP_E_ARG, kvpi_save_snapshot(s.w.cache, &options, PATH, &system, NULL));
    options.get = saved_options(NULL).get;
    assert_status(KVP_E_ARG, kvpi_save_snapshot(s.w.cache, &options, "", &system, NULL));
    assert_status(KVP_E_ARG, kvpi_save_snapshot(s.w.cache, &options, NULL, &system, NULL));
    assert_status(KVP_E_IO, kvpi_save_snapshot(s.w.cache, &options, "/disk/", &system, &said));
    assert_int_equal(said, EISDIR);
    assert_true(is_same(disk_see(&d, NAME), &s.old));
    assert_null(disk_see(&d, PART));
    disk_drop(&d);
}

TEST_MAIN(NULL, NULL)
