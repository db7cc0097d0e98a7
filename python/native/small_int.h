/* small_int.h: how each version of Python keeps a small int. */
#ifndef KVPY_SMALL_INT_H
#define KVPY_SMALL_INT_H

#include <Python.h>

#if PY_VERSION_HEX < 0x030b0000
#include <longintrepr.h>
#endif

/* 1, and its value: an int, and of no class made from int, that Python keeps in one digit of 30 bits.
 * 0: another thing, or another number. */
static inline int kvpy_small_int(PyObject *item, int32_t *out)
{
    if (!PyLong_CheckExact(item))
        return 0;
    const PyLongObject *number = (const PyLongObject *)item;
#if PY_VERSION_HEX >= 0x030c0000
    if (!PyUnstable_Long_IsCompact(number))
        return 0;
    *out = (int32_t)PyUnstable_Long_CompactValue(number);
#else
    const size_t n_digits = (size_t)Py_SIZE(item); /* of a negative one many */
    if (n_digits > 1)
        return 0;
    *out = (int32_t)(number->ob_digit[0] & (digit)-n_digits);
#endif
    return 1;
}

#endif
