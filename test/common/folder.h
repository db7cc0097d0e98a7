/* folder: an empty folder of the real disk, for what saved.h has. */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

#include "saved.h"

typedef struct folder {
    char path[260];
    char file[300], part[300]; /* NAME and PART in it */
} folder;

folder make_folder(void);

/* Remove the file and the folder. Nothing else may be left in it. */
void end_folder(const folder *f);
#define scoped_folder ENDED_BY(end_folder) folder

/* A new file with this text. */
void write_file(const char *path, const char *text);

#endif
