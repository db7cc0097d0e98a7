/* folder: see folder.h. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"

#if defined(_WIN32)

#include <windows.h>

#define SEPARATOR "\\"

static void make(char path[260])
{
    static unsigned n_made;
    char temporary[160];
    assert_in_range(GetTempPathA(sizeof(temporary), temporary), 1, sizeof(temporary) - 1);
    snprintf(path, 260, "%skvp_save_%lu_%u", temporary, GetCurrentProcessId(), n_made++);
    assert_true(CreateDirectoryA(path, NULL));
}

static bool remove_empty(const char *path)
{
    return RemoveDirectoryA(path);
}

#else

#include <unistd.h>

#define SEPARATOR "/"

static void make(char path[260])
{
    strcpy(path, "/tmp/kvp_save_XXXXXX");
    assert_non_null(mkdtemp(path));
}

static bool remove_empty(const char *path)
{
    return rmdir(path) == 0;
}

#endif

folder make_folder(void)
{
    folder f;
    make(f.path);
    snprintf(f.file, sizeof(f.file), "%s" SEPARATOR NAME, f.path);
    snprintf(f.part, sizeof(f.part), "%s" SEPARATOR PART, f.path);
    return f;
}

void end_folder(const folder *f)
{
    (void)remove(f->file);
    assert_true(remove_empty(f->path));
}

void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}
