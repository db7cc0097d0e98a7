/* which: the system that this is built for. Linux; Windows; or what POSIX has
 * (-DKVP_PLATFORM=posix): no huge pages, no nodes, random bits from /dev/urandom. */
#ifndef KVPI_WHICH_H
#define KVPI_WHICH_H

#if defined(__linux__) && !defined(KVP_PLATFORM_POSIX)
#define KVPI_LINUX 1
#else
#define KVPI_LINUX 0
#endif

#if defined(_WIN32)
#define KVPI_WINDOWS 1
#else
#define KVPI_WINDOWS 0
#endif

#endif
