/* See folder.h. */
#define _POSIX_C_SOURCE 200809L

#include "tool/input/folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ends(const char *name, size_t n, const char *with)
{
    const size_t n_with = strlen(with);
    return n > n_with && memcmp(name + n - n_with, with, n_with) == 0;
}

static bool is_trace(const char *name)
{
    size_t n = strlen(name);
    n -= ends(name, n, ".gz") ? 3 : ends(name, n, ".zst") ? 4 : 0;
    return *name != '.' && (ends(name, n, ".json") || ends(name, n, ".jsonl") ||
                            ends(name, n, ".csv") || ends(name, n, ".kvprec"));
}

static bool add(kvpi_folder *folder, const char *path, const char *name)
{
    if (folder->n == folder->capacity) {
        const size_t capacity = folder->capacity == 0 ? 64 : folder->capacity * 2;
        char **paths = realloc(folder->paths, capacity * sizeof *paths);
        if (paths == NULL)
            return false;
        folder->paths = paths;
        folder->capacity = capacity;
    }
    const size_t n = strlen(path) + strlen(name) + 2;
    char *made = malloc(n);
    if (made == NULL)
        return false;
    snprintf(made, n, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", name);
    folder->paths[folder->n++] = made;
    return true;
}

static int compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

int kvpi_folder_list(kvpi_folder *folder, const char *path)
{
    bool fine = true;
    const struct dirent *entry;
    if (*path == '\0')
        return 0;
    DIR *open = opendir(path);
    if (open == NULL)
        return 0;
    while (fine && (entry = readdir(open)) != NULL)
        fine = !is_trace(entry->d_name) || add(folder, path, entry->d_name);
    closedir(open);
    if (folder->n > 0)
        qsort(folder->paths, folder->n, sizeof *folder->paths, compare);
    return fine ? 1 : -1;
}

void kvpi_folder_free(kvpi_folder *folder)
{
    for (size_t i = 0; i < folder->n; i++)
        free(folder->paths[i]);
    free(folder->paths);
    *folder = (kvpi_folder){0};
}
