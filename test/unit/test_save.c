/* Snapshots in files: whatever happens while one is saved, there is the old one or the new one,
 * whole. On a simulated disk (disk.h) that is cut off and fails at every call; then a real one. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"
#include "base/platform/save.h"
#include "snaps.h"

enum { BLOCK_BYTES = 5000 }; /* a snapshot of several writes */

#define NAME "cache.kvsnap"
#define PART "cache.kvsnap.part-0"
#define PATH "/disk/" NAME

static int get_kv(void *context, const kvp_snapshot_block *block, void *out)
{
    const int *fails = context;
    memset(out, block->block, BLOCK_BYTES);
    return fails != NULL && *fails;
}

static kvp_snapshot_options options_with(int *fails)
{
    kvp_snapshot_options options = snap_options();
    options.block_bytes = BLOCK_BYTES;
    options.context = fails;
    options.get = get_kv;
    return options;
}

/* A cache, what was saved of it before, and what is to be saved now. */
typedef struct saved {
    world w;
    snap before, now;
    disk_bytes old, new;
} saved;

static saved make_saved(void)
{
    const kvp_config config = config_of(4, 4, 60);
    const kvp_snapshot_options options = options_with(NULL);
    saved s = {.w = make_world(&config)};
    leave_cached(&s.w, ints(0), 160);
    s.before = snap_of(s.w.cache, &options);
    leave_cached(&s.w, ints(1000), 60);
    s.now = snap_of(s.w.cache, &options);
    s.old = (disk_bytes){s.before.bytes, s.before.n};
    s.new = (disk_bytes){s.now.bytes, s.now.n};
    assert_true(s.new.n > s.old.n && s.old.n > 3 * 65536);
    return s;
}

static void end_saved(saved *s)
{
    snap_drop(&s->before);
    snap_drop(&s->now);
    end_world(&s->w);
}

static kvp_status save_on(saved *s, disk *d, int *out_error)
{
    const kvp_snapshot_options options = options_with(NULL);
    const struct kvpi_system system = disk_system(d);
    return kvpi_save_snapshot(s->w.cache, &options, PATH, &system, out_error);
}

static bool is_same(const disk_bytes *a, const disk_bytes *b)
{
    return a->at != NULL && a->n == b->n && memcmp(a->at, b->at, a->n) == 0;
}

/* Everything that a loss of power may leave. */
static void assert_left(const saved *s, const disk *d, bool may_be_old, bool may_be_new)
{
    for (unsigned happened = 0; happened < 1u << d->n_changes; happened++) {
        for (int content = 0; content < DISK_CONTENTS; content++) {
            disk_bytes left = disk_after(d, NAME, happened, content);
            const bool is_right = (may_be_old && is_same(&left, &s->old)) ||
                                  (may_be_new && is_same(&left, &s->new));
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

static void test_the_power_goes_at_any_call(void **state)
{
    (void)state;
    saved s = make_saved();
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
    end_saved(&s);
}

/* The call that fails, and what must come of it. */
static void check_fault(saved *s, int at, int n, int error)
{
    disk d = {.fail_at = at, .error = error};
    int said = -1;
    disk_put(&d, NAME, &s->old, 0);
    const kvp_status status = save_on(s, &d, &said);
    const bool again = (error == EINTR && d.last != DISK_KIND && d.last != DISK_RENAME &&
                        d.last != DISK_CLOSE) ||
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

static void test_any_call_fails(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, EINTR, EDQUOT, 0};
    saved s = make_saved();
    const int n = count_calls(&s);
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        for (int at = 1; at <= n; at++)
            check_fault(&s, at, n, errors[i]);
    end_saved(&s);
}

static void test_there_was_nothing_before(void **state)
{
    (void)state;
    saved s = make_saved();
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
    end_saved(&s);
}

/* What killed processes left behind is passed over, and stays. */
static void test_parts_of_others(void **state)
{
    (void)state;
    saved s = make_saved();
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
    end_saved(&s);
}

static void test_only_files_are_replaced(void **state)
{
    (void)state;
    static const struct {
        int kind, error;
    } cases[] = {{KVPI_SYSTEM_FOLDER, EISDIR},
                 {KVPI_SYSTEM_LINK, ELOOP},
                 {KVPI_SYSTEM_OTHER, ENOTSUP}};
    saved s = make_saved();
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
    end_saved(&s);
}

static void test_a_save_that_is_refused_changes_nothing(void **state)
{
    (void)state;
    saved s = make_saved();
    disk d = {0};
    int fails = 1, said = -1;
    const struct kvpi_system system = disk_system(&d);
    kvp_snapshot_options options = options_with(&fails);
    disk_put(&d, NAME, &s.old, 0);
    assert_status(KVP_E_IO, kvpi_save_snapshot(s.w.cache, &options, PATH, &system, &said));
    assert_int_equal(said, 0); /* the system said nothing: get failed */
    options.get = NULL;
    assert_status(KVP_E_ARG, kvpi_save_snapshot(s.w.cache, &options, PATH, &system, NULL));
    options.get = get_kv;
    assert_status(KVP_E_ARG, kvpi_save_snapshot(s.w.cache, &options, "", &system, NULL));
    assert_status(KVP_E_ARG, kvpi_save_snapshot(s.w.cache, &options, NULL, &system, NULL));
    assert_status(KVP_E_IO, kvpi_save_snapshot(s.w.cache, &options, "/disk/", &system, &said));
    assert_int_equal(said, EISDIR);
    assert_true(is_same(disk_see(&d, NAME), &s.old));
    assert_null(disk_see(&d, PART));
    disk_drop(&d);
    end_saved(&s);
}

/* --------------------------------------------------------------------------------- a real disk */

typedef struct folder {
    char path[64], file[96], part[96];
} folder;

static folder make_folder(void)
{
    folder f = {.path = "/tmp/kvp_save_XXXXXX"};
    assert_non_null(mkdtemp(f.path));
    snprintf(f.file, sizeof(f.file), "%s/" NAME, f.path);
    snprintf(f.part, sizeof(f.part), "%s/" PART, f.path);
    return f;
}

static void end_folder(const folder *f)
{
    (void)unlink(f->file);
    assert_int_equal(rmdir(f->path), 0); /* nothing else is left */
}

static disk_bytes read_all(const char *path)
{
    struct stat about;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &about), 0);
    disk_bytes out = {malloc((size_t)about.st_size + 1), (size_t)about.st_size};
    assert_non_null(out.at);
    assert_int_equal(fread(out.at, 1, out.n, file), out.n);
    fclose(file);
    return out;
}

static void assert_file(const char *path, const disk_bytes *wanted)
{
    disk_bytes found = read_all(path);
    assert_true(is_same(&found, wanted));
    free(found.at);
}

static kvp_status save_to(const saved *s, const char *path, int *out_error)
{
    const kvp_snapshot_options options = options_with(NULL);
    return kvp_snapshot_save_file(s->w.cache, &options, path, out_error);
}

static void test_a_real_file_is_replaced(void **state)
{
    (void)state;
    saved s = make_saved();
    const folder f = make_folder();
    struct stat about;
    FILE *old = fopen(f.file, "wb");
    assert_non_null(old);
    assert_int_equal(fwrite("old", 1, 3, old), 3);
    fclose(old);
    assert_ok(save_to(&s, f.file, NULL));
    assert_file(f.file, &s.new);
    assert_int_equal(stat(f.file, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(chdir(f.path), 0);
    assert_int_equal(unlink(f.file), 0);
    assert_ok(save_to(&s, NAME, NULL)); /* in the folder that one is in */
    assert_file(f.file, &s.new);
    assert_int_equal(chdir("/"), 0);
    end_folder(&f);
    end_saved(&s);
}

/* A limit of the file's size stands for the full disk. */
static void test_a_full_disk_leaves_the_old_one(void **state)
{
    (void)state;
    saved s = make_saved();
    const folder f = make_folder();
    struct rlimit before, small;
    int said = 0;
    assert_ok(save_to(&s, f.file, NULL));
    leave_cached(&s.w, ints(2000), 8);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const kvp_status status = save_to(&s, f.file, &said);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_status(KVP_E_IO, status);
    assert_int_equal(said, EFBIG);
    assert_file(f.file, &s.new);
    end_folder(&f);
    end_saved(&s);
}

static void test_what_is_no_file_stays(void **state)
{
    (void)state;
    saved s = make_saved();
    const folder f = make_folder();
    struct stat about;
    char deeper[128];
    int said = 0;
    snprintf(deeper, sizeof(deeper), "%s/none/" NAME, f.path);
    assert_status(KVP_E_IO, save_to(&s, deeper, &said));
    assert_int_equal(said, ENOENT);
    assert_status(KVP_E_IO, save_to(&s, f.path, &said));
    assert_int_equal(said, EISDIR);
    assert_int_equal(symlink(deeper, f.file), 0);
    assert_status(KVP_E_IO, save_to(&s, f.file, &said));
    assert_int_equal(said, ELOOP);
    assert_int_equal(lstat(f.file, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(unlink(f.file), 0);
    assert_int_equal(mkfifo(f.file, 0600), 0); /* which nobody reads: no open may wait for it */
    assert_status(KVP_E_IO, save_to(&s, f.file, &said));
    assert_int_equal(said, ENOTSUP);
    assert_status(KVP_E_IO, save_to(&s, "/dev/full", &said));
    assert_int_equal(said, ENOTSUP);
    assert_int_equal(stat("/dev/full", &about), 0);
    assert_true(S_ISCHR(about.st_mode));
    end_folder(&f);
    end_saved(&s);
}

/* A part that is a link, put there by somebody else, is not written through. */
static void test_a_link_in_the_parts_place(void **state)
{
    (void)state;
    saved s = make_saved();
    const folder f = make_folder();
    char victim[96];
    const disk_bytes precious = {(uint8_t *)"precious", 8};
    snprintf(victim, sizeof(victim), "%s/victim", f.path);
    FILE *file = fopen(victim, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite("precious", 1, 8, file), 8);
    fclose(file);
    assert_int_equal(symlink(victim, f.part), 0);
    assert_ok(save_to(&s, f.file, NULL));
    assert_file(f.file, &s.new);
    assert_file(victim, &precious);
    assert_int_equal(unlink(f.part), 0);
    assert_int_equal(unlink(victim), 0);
    end_folder(&f);
    end_saved(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_power_goes_at_any_call),
        cmocka_unit_test(test_any_call_fails),
        cmocka_unit_test(test_there_was_nothing_before),
        cmocka_unit_test(test_parts_of_others),
        cmocka_unit_test(test_only_files_are_replaced),
        cmocka_unit_test(test_a_save_that_is_refused_changes_nothing),
        cmocka_unit_test(test_a_real_file_is_replaced),
        cmocka_unit_test(test_a_full_disk_leaves_the_old_one),
        cmocka_unit_test(test_what_is_no_file_stays),
        cmocka_unit_test(test_a_link_in_the_parts_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
