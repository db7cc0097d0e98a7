/* share: memory that one process writes and another one of the same machine reads. On Linux a memfd
 * that is passed over a Unix socket. It has no name, and goes with the last process that has it.
 *
 * The memory is sealed: it never shrinks, and only its maker writes to it or takes pages out
 * of it. So a reader that has checked the seals, and that all pages are there, is never ended by
 * one that is gone. */
#ifndef KVPI_SHARE_H
#define KVPI_SHARE_H

#include <stddef.h>

/* Can this system do that? The other calls fail where it cannot. */
int kvpi_share_exists(void);

/* Is it a connected Unix socket that gives bytes in order? */
int kvpi_share_is_socket(int socket);

/* A descriptor of the same socket, which programs that are started do not inherit; -1: none. */
int kvpi_share_keep(int socket);

/* Make zeroed memory of whole pages, mapped to be written. Returns its descriptor; -1: none. */
int kvpi_share_make(size_t bytes, void **out_memory);

/* Map another process's memory to be read. NULL: it has not this size, pages are missing, or its
 * maker could take them back; or the system refuses. */
const void *kvpi_share_view(int memory, size_t bytes);

void kvpi_share_unmap(const void *memory, size_t bytes);

/* Send bytes and a descriptor as one; 0: the peer is gone, or there is no room. */
int kvpi_share_send(int socket, const void *bytes, size_t n_bytes, int memory);

/* Take both. 1: they are there; 0: nothing has come yet; -1: the peer is gone; -2: what came is not
 * n_bytes and one descriptor, and no descriptor is kept. */
int kvpi_share_receive(int socket, void *bytes, size_t n_bytes, int *out_memory);

/* Has the peer closed its end? */
int kvpi_share_is_gone(int socket);

/* Let the peer know that this end is done with, also if copies of the descriptor are open. */
void kvpi_share_leave(int socket);

void kvpi_share_close(int descriptor);

#endif
