/* shm: what the rest of the room asks of links over shared memory. */
#ifndef KVPI_TRANSFER_SHM_H
#define KVPI_TRANSFER_SHM_H

#include <kvpager/transfer.h>

/* Is what the link lends read by another processor where it lies? */
int kvpi_shm_is_link(const kvp_link *link);

#endif
