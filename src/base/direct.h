/* direct: what O_DIRECT means for a file. A file system may take the flag and go through its page
 * cache all the same: tmpfs does since Linux 6.6, ext4 does for files whose data it journals. The
 * includer has defined _GNU_SOURCE. */
#ifndef KVPI_DIRECT_H
#define KVPI_DIRECT_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif

/* 1: a file that was opened with O_DIRECT goes past the page cache, if offsets, lengths and
 * addresses are multiples of `grain`; as far as the system tells. */
static inline int kvpi_direct_works(int file, uint32_t grain)
{
#ifdef __linux__
    const uint32_t tmpfs = 0x01021994;
    const uint32_t ramfs = 0x858458f6;
    struct statfs system;
    if (fstatfs(file, &system) == 0 &&
        ((uint32_t)system.f_type == tmpfs || (uint32_t)system.f_type == ramfs))
        return 0;
#endif
#ifdef STATX_DIOALIGN
    struct statx stat;
    if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stat) == 0 &&
        (stat.stx_mask & STATX_DIOALIGN) != 0)
        return stat.stx_dio_mem_align > 0 && stat.stx_dio_mem_align <= grain &&
               stat.stx_dio_offset_align <= grain;
#endif
    (void)file;
    (void)grain;
    return 1;
}

#endif
