/* date_time: a date and a time as traces write them, in the Gregorian calendar. */
#include "tool/requests/parse.h"

#define US_PER_SECOND INT64_C(1000000)

/* Takes exactly n digits. Gives false when there are not as many. */
static bool take_digits(const char **at, int n, int64_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        *out = *out * 10 + (**at - '0');
    }
    return true;
}

static bool take_char(const char **at, char wanted)
{
    if (**at != wanted)
        return false;
    (*at)++;
    return true;
}

/* ".680590" -> microseconds; digits after the sixth are cut off. Nothing there is 0. */
static bool take_fraction(const char **at, int64_t *out_us)
{
    *out_us = 0;
    if (!take_char(at, '.'))
        return true;
    int64_t weight = US_PER_SECOND / 10;
    const char *start = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++, weight /= 10)
        *out_us += (**at - '0') * weight;
    return *at > start;
}

/* "Z", "+01:00", or nothing -> seconds to subtract. */
static bool take_offset(const char **at, int64_t *out_seconds)
{
    int64_t sign = **at == '-' ? -1 : 1, hours, minutes;
    *out_seconds = 0;
    if (take_char(at, 'Z') || **at == '\0' || **at == '"')
        return true;
    if (!take_char(at, '+') && !take_char(at, '-'))
        return false;
    if (!take_digits(at, 2, &hours) || !take_char(at, ':') || !take_digits(at, 2, &minutes))
        return false;
    *out_seconds = sign * (hours * 3600 + minutes * 60);
    return hours < 24 && minutes < 60;
}

/* Days since 1970-01-01 in the Gregorian calendar (years from March, so that the leap day ends
 * one); the algorithm is Howard Hinnant's days_from_civil. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400, year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static bool is_date(int64_t year, int64_t month, int64_t day)
{
    if (year < 1970 || month < 1 || month > 12 || day < 1)
        return false;
    int64_t next_year = month == 12 ? year + 1 : year, next_month = month == 12 ? 1 : month + 1;
    return day <= days_of(next_year, next_month, 1) - days_of(year, month, 1);
}

static bool take_date(const char **at, int64_t *out_seconds)
{
    int64_t year, month, day;
    if (!take_digits(at, 4, &year) || !take_char(at, '-') || !take_digits(at, 2, &month) ||
        !take_char(at, '-') || !take_digits(at, 2, &day) || !is_date(year, month, day))
        return false;
    *out_seconds = days_of(year, month, day) * 86400;
    return true;
}

/* Allows a leap second. */
static bool take_time(const char **at, int64_t *out_seconds)
{
    int64_t hour, minute, second;
    if (!take_digits(at, 2, &hour) || !take_char(at, ':') || !take_digits(at, 2, &minute) ||
        !take_char(at, ':') || !take_digits(at, 2, &second))
        return false;
    *out_seconds = hour * 3600 + minute * 60 + second;
    return hour < 24 && minute < 60 && second <= 60;
}

bool kvpi_date_time(const char *text, int64_t *out_us)
{
    int64_t date, time, offset, fraction;
    const char *at = text;
    if (!take_date(&at, &date))
        return false;
    if (!take_char(&at, ' ') && !take_char(&at, 'T'))
        return false;
    if (!take_time(&at, &time) || !take_fraction(&at, &fraction) || !take_offset(&at, &offset))
        return false;
    *out_us = (date + time - offset) * US_PER_SECOND + fraction;
    return *at == '\0' || *at == '"';
}
