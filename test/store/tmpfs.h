/* A file system of the test's own, where mounting is allowed. After cmocka.h. */
#ifndef KVP_TEST_STORE_TMPFS_H
#define KVP_TEST_STORE_TMPFS_H

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static char mounted[64]; /* in the working directory */

/* What is mounted goes with this process, whatever becomes of it. */
static inline void own_mounts(void)
{
    if (unshare(CLONE_NEWNS) == 0)
        (void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static inline void make_mounted(void)
{
    snprintf(mounted, sizeof mounted, "store_tmpfs_XXXXXX");
    assert_non_null(mkdtemp(mounted));
}

/* NULL, and a sentence, where it is not allowed. */
static inline const char *mount_tmpfs(const char *options)
{
    make_mounted();
    if (mount("none", mounted, "tmpfs", 0, options) == 0)
        return mounted;
    print_message("skipped: tmpfs cannot be mounted here: %s\n", strerror(errno));
    rmdir(mounted);
    return NULL;
}

static inline void unmount(void)
{
    assert_int_equal(umount(mounted), 0);
    rmdir(mounted);
}

#endif
