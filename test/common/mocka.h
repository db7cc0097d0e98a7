/* mocka: cmocka.h with what it needs before it. */
#ifndef TEST_MOCKA_H
#define TEST_MOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
