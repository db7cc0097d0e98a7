#include "disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum { FOLDER = 100 };

static disk_bytes copy_of(const disk_bytes *bytes)
{
    disk_bytes copy = {malloc(bytes->n + 1), bytes->n};
    assert_non_null(copy.at);
    if (bytes->n > 0)
        memcpy(copy.at, bytes->at, bytes->n);
    return copy;
}

static disk_name *find(disk_names *names, const char *name)
{
    for (int i = 0; i < DISK_NAMES; i++)
        if (strcmp(names->at[i].of, name) == 0)
            return &names->at[i];
    return NULL;
}

static void apply(disk_names *names, const disk_change *change)
{
    disk_name *from = change->from[0] != '\0' ? find(names, change->from) : NULL;
    disk_name *to = change->to.of[0] != '\0' ? find(names, change->to.of) : NULL;
    if (from != NULL)
        *from = (disk_name){.of = ""};
    if (change->to.of[0] != '\0') {
        to = to == NULL ? find(names, "") : to;
        assert_non_null(to);
        *to = change->to;
    }
}

static void change_names(disk *d, const disk_change *change)
{
    assert_true(d->n_changes < DISK_CHANGES);
    d->changes[d->n_changes++] = *change;
    apply(&d->seen, change);
}

static void set_name(char *out, const char *name)
{
    assert_true(strlen(name) < DISK_NAME_BYTES);
    strcpy(out, name);
}

/* 0: go on; else what the call gives. */
static int asked(disk *d, disk_call call)
{
    d->n_calls++;
    assert_true(d->n_calls < 1000); /* who tries for ever */
    if (d->is_off || d->n_calls == d->cut_at) {
        d->last = d->is_off ? d->last : call;
        d->is_off = true;
        return -EIO;
    }
    if (d->n_calls == d->fail_at) {
        d->last = call;
        return -d->error;
    }
    return 0;
}

/* ------------------------------------------------------------------------------- the functions */

static int open_folder(void *context, const char *path)
{
    const int wrong = asked(context, DISK_OPEN);
    assert_string_equal(path, "/disk/.");
    return wrong != 0 ? wrong : FOLDER;
}

static int kind_of(void *context, int folder, const char *name)
{
    disk *d = context;
    const int wrong = asked(d, DISK_KIND);
    const disk_name *found = find(&d->seen, name);
    assert_int_equal(folder, FOLDER);
    if (wrong != 0)
        return wrong;
    return found == NULL     ? KVPI_SYSTEM_NOTHING
           : found->file < 0 ? -1 - found->file
                             : KVPI_SYSTEM_FILE;
}

static int create(void *context, int folder, const char *name)
{
    disk *d = context;
    const int wrong = asked(d, DISK_CREATE);
    disk_change change = {.to.file = d->n_files};
    assert_int_equal(folder, FOLDER);
    if (wrong != 0)
        return wrong;
    if (find(&d->seen, name) != NULL)
        return -EEXIST;
    assert_true(d->n_files < DISK_FILES);
    set_name(change.to.of, name);
    change_names(d, &change);
    return d->n_files++;
}

static int64_t write_bytes(void *context, int file, const void *bytes, size_t n)
{
    disk *d = context;
    const bool was_off = d->is_off;
    const int wrong = asked(d, DISK_WRITE);
    const bool is_short = d->n_calls == d->fail_at && d->error == 0;
    disk_bytes *seen = &d->files[file].seen;
    size_t taken = is_short ? 1 : n;
    if (wrong != 0)
        taken = d->is_off && !was_off && d->halves ? n / 2 : 0;
    seen->at = realloc(seen->at, seen->n + taken + 1);
    assert_non_null(seen->at);
    memcpy(seen->at + seen->n, bytes, taken);
    seen->n += taken;
    return wrong != 0 ? wrong : (int64_t)taken;
}

static int sync_file(void *context, int file)
{
    disk *d = context;
    const int wrong = asked(d, DISK_SYNC);
    disk_file *f = &d->files[file];
    f->is_lost |= wrong != 0 && wrong != -EINTR;
    if (wrong == 0 && !f->is_lost) {
        free(f->safe.at);
        f->safe = copy_of(&f->seen);
    }
    return wrong;
}

static int sync_folder(void *context, int folder)
{
    disk *d = context;
    const int wrong = asked(d, DISK_SYNC_FOLDER);
    assert_int_equal(folder, FOLDER);
    if (wrong == 0) {
        d->safe = d->seen;
        d->n_changes = 0;
    }
    return wrong;
}

static int rename_file(void *context, int folder, const char *from, const char *to)
{
    disk *d = context;
    const int wrong = asked(d, DISK_RENAME);
    disk_change change = {.from = ""};
    assert_int_equal(folder, FOLDER);
    if (wrong != 0)
        return wrong;
    change.to = *find(&d->seen, from);
    set_name(change.from, from);
    set_name(change.to.of, to);
    change_names(d, &change);
    return 0;
}

static int remove_file(void *context, int folder, const char *name)
{
    disk *d = context;
    const int wrong = asked(d, DISK_REMOVE);
    disk_change change = {.to.of = ""};
    assert_int_equal(folder, FOLDER);
    if (wrong != 0)
        return wrong;
    set_name(change.from, name);
    change_names(d, &change);
    return 0;
}

static int close_file(void *context, int file)
{
    (void)file;
    return asked(context, DISK_CLOSE);
}

struct kvpi_system disk_system(disk *d)
{
    return (struct kvpi_system){d,           "/",         open_folder, kind_of,
                                create,      write_bytes, sync_file,   sync_folder,
                                rename_file, remove_file, close_file};
}

/* --------------------------------------------------------------------------- before and after */

void disk_put(disk *d, const char *name, const disk_bytes *bytes, int kind)
{
    disk_change change = {.to.file = bytes != NULL ? d->n_files : -1 - kind};
    if (bytes != NULL) {
        d->files[d->n_files] = (disk_file){copy_of(bytes), copy_of(bytes), false};
        d->n_files++;
    }
    set_name(change.to.of, name);
    apply(&d->seen, &change);
    apply(&d->safe, &change);
}

void disk_drop(disk *d)
{
    for (int i = 0; i < d->n_files; i++) {
        free(d->files[i].seen.at);
        free(d->files[i].safe.at);
    }
    *d = (disk){0};
}

const disk_bytes *disk_see(const disk *d, const char *name)
{
    disk_names names = d->seen;
    const disk_name *found = find(&names, name);
    return found == NULL ? NULL : &d->files[found->file].seen;
}

disk_bytes disk_after(const disk *d, const char *name, unsigned happened, int content)
{
    disk_names names = d->safe;
    for (int i = 0; i < d->n_changes; i++)
        if (happened >> i & 1)
            apply(&names, &d->changes[i]);
    const disk_name *found = find(&names, name);
    if (found == NULL)
        return (disk_bytes){NULL, 0};
    const disk_file *file = &d->files[found->file];
    if (file->safe.n == file->seen.n || content == DISK_NOTHING)
        return copy_of(&file->safe);
    disk_bytes out = copy_of(&file->seen);
    if (content == DISK_HALF)
        out.n = (file->safe.n + file->seen.n) / 2;
    if (content == DISK_ZEROS)
        memset(out.at + file->safe.n, 0, out.n - file->safe.n);
    return out;
}
