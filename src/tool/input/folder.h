/* folder: the traces of a folder, by the ends of their names. */
#ifndef KVPI_FOLDER_H
#define KVPI_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct kvpi_folder {
    char **paths; /* [n] in the order of their names */
    size_t n, capacity;
} kvpi_folder;

/* List the files of a folder, not of folders in it, whose names end in .json, .jsonl, .csv or
 * .kvprec, perhaps followed by .gz or .zst. Zero `folder` before.
 *
 * Gives:   folder   to be freed, also after a failure; unchanged if it is no folder
 * Returns: 1 listed; 0 it is no folder, or not to be opened; -1 out of memory
 */
int kvpi_folder_list(kvpi_folder *folder, const char *path);
void kvpi_folder_free(kvpi_folder *folder);

#endif
