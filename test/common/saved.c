/* saved: see saved.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "saved.h"

enum { BLOCK_BYTES = 5000 };

static int get_kv(void *context, const kvp_snapshot_block *block, void *out)
{
    const int *fails = context;
    memset(out, block->block, BLOCK_BYTES);
    return fails != NULL && *fails;
}

kvp_snapshot_options saved_options(int *fails)
{
    kvp_snapshot_options options = snap_options();
    options.block_bytes = BLOCK_BYTES;
    options.context = fails;
    options.get = get_kv;
    return options;
}

saved make_saved(void)
{
    const kvp_config config = config_of(4, 4, 60);
    const kvp_snapshot_options options = saved_options(NULL);
    saved s = {.w = make_world(&config)};
    leave_cached(&s.w, ints(0), 160);
    s.before = snap_of(s.w.cache, &options);
    leave_cached(&s.w, ints(1000), 60);
    s.now = snap_of(s.w.cache, &options);
    s.old = (disk_bytes){s.before.bytes, s.before.n};
    s.new = (disk_bytes){s.now.bytes, s.now.n};
    assert_true(s.new.n > s.old.n &&s.old.n > 3 * 65536);
    return s;
}

void end_saved(saved *s)
{
    snap_drop(&s->before);
    snap_drop(&s->now);
    end_world(&s->w);
}

bool is_same(const disk_bytes *a, const disk_bytes *b)
{
    return a->at != NULL && a->n == b->n && memcmp(a->at, b->at, a->n) == 0;
}

static disk_bytes read_all(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const size_t n = (size_t)ftell(file);
    disk_bytes out = {malloc(n + 1), n};
    assert_non_null(out.at);
    rewind(file);
    assert_int_equal(fread(out.at, 1, n, file), n);
    fclose(file);
    return out;
}

void assert_file(const char *path, const disk_bytes *wanted)
{
    disk_bytes found = read_all(path);
    assert_true(is_same(&found, wanted));
    free(found.at);
}

kvp_status save_to(const saved *s, const char *path, int *out_error)
{
    const kvp_snapshot_options options = saved_options(NULL);
    return kvp_snapshot_save_file(s->w.cache, &options, path, out_error);
}
