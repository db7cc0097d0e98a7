/* Reads the CSV formats: a header that names columns, then a request a line.
 *
 * Columns are found by name, so their order does not matter and further ones are allowed. Fields
 * are split at every comma: none of these data sets quotes anything, and a quoted comma shows up as
 * a wrong number of fields.
 *
 *   Azure      TIMESTAMP 2023-11-16 18:15:46.6805900, ContextTokens, GeneratedTokens
 *              (later editions append an offset from UTC, as in +00:00)
 *   BurstGPT   Timestamp in seconds, Request tokens, Response tokens
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/requests/parse.h"

#define MAX_COLUMNS   32
#define US_PER_SECOND INT64_C(1000000)

/* The largest time in seconds that is accepted: some 285,000 years. */
#define MAX_SECONDS INT64_C(9007199254740)

/* The columns of a format, in the order timestamp, input, output. */
typedef struct csv_format {
    kvpi_requests_format format;
    const char *names[3];
} csv_format;

static const csv_format formats[] = {
    {KVPI_REQUESTS_AZURE, {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}},
    {KVPI_REQUESTS_BURSTGPT, {"Timestamp", "Request tokens", "Response tokens"}},
};

static const csv_format *find_format(kvpi_requests_format format)
{
    return format == KVPI_REQUESTS_AZURE ? &formats[0] : &formats[1];
}

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    text[n] = '\0';
    return text;
}

/* Cuts the line at its commas. Gives how many fields there are, which may be more than fit. */
static size_t split(char *text, char *fields[MAX_COLUMNS])
{
    size_t n = 0;
    while (text != NULL) {
        char *comma = strchr(text, ',');
        if (comma != NULL)
            *comma++ = '\0';
        if (n < MAX_COLUMNS)
            fields[n] = trim(text);
        n++;
        text = comma;
    }
    return n;
}

/* Gives n when no column has the name. */
static size_t find_column(char *const fields[], size_t n, const char *name)
{
    size_t i = 0;
    while (i < n && strcmp(fields[i], name) != 0)
        i++;
    return i;
}

static bool match_header(const csv_format *format, char *const fields[], size_t n,
                         kvpi_requests_columns *out)
{
    out->n = n;
    out->timestamp = find_column(fields, n, format->names[0]);
    out->input = find_column(fields, n, format->names[1]);
    out->output = find_column(fields, n, format->names[2]);
    return out->timestamp < n && out->input < n && out->output < n;
}

int kvpi_requests_csv_header(kvpi_requests_parser *parser, char *text)
{
    char *fields[MAX_COLUMNS];
    size_t n = split(text, fields);
    for (size_t i = 0; n <= MAX_COLUMNS && i < sizeof formats / sizeof *formats; i++) {
        if (!match_header(&formats[i], fields, n, &parser->columns))
            continue;
        parser->format = formats[i].format;
        parser->format_known = true;
        return 0;
    }
    return kvpi_requests_fail(parser,
                              "'%.40s' begins no known format, expected a JSON object or a header: "
                              "TIMESTAMP,ContextTokens,GeneratedTokens or Timestamp,Model,"
                              "Request tokens,Response tokens,Total tokens,Log Type",
                              fields[0]);
}

static int read_length(kvpi_requests_parser *parser, const char *name, const char *text,
                       int32_t *out)
{
    int64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && value <= KVPI_REQUESTS_MAX_TOKENS; at++)
        value = value * 10 + (*at - '0');
    if (at == text || *at != '\0' || value > KVPI_REQUESTS_MAX_TOKENS)
        return kvpi_requests_fail(parser,
                                  "%s is '%.40s', expected a whole number from 0 to %" PRId32, name,
                                  text, KVPI_REQUESTS_MAX_TOKENS);
    *out = (int32_t)value;
    return 0;
}

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
    if (take_char(at, 'Z') || **at == '\0')
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

static bool parse_date_time(const char *text, int64_t *out_us)
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
    return *at == '\0';
}

static bool parse_seconds(const char *text, int64_t *out_us)
{
    int64_t seconds = 0, fraction;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && seconds <= MAX_SECONDS; at++)
        seconds = seconds * 10 + (*at - '0');
    if (at == text || seconds > MAX_SECONDS || !take_fraction(&at, &fraction))
        return false;
    *out_us = seconds * US_PER_SECOND + fraction;
    return *at == '\0';
}

static int read_timestamp(kvpi_requests_parser *parser, const char *name, const char *text,
                          int64_t *out_us)
{
    if (parser->format == KVPI_REQUESTS_AZURE) {
        if (!parse_date_time(text, out_us))
            return kvpi_requests_fail(
                parser, "%s is '%.40s', expected a time such as 2023-11-16 18:15:46.6805900", name,
                text);
        return 0;
    }
    if (!parse_seconds(text, out_us))
        return kvpi_requests_fail(parser, "%s is '%.40s', expected seconds from 0 to %" PRId64,
                                  name, text, MAX_SECONDS);
    return 0;
}

int kvpi_requests_csv_line(kvpi_requests_parser *parser, char *text)
{
    const csv_format *format = find_format(parser->format);
    const kvpi_requests_columns *columns = &parser->columns;
    kvpi_request request = {0};
    char *fields[MAX_COLUMNS];
    size_t n = split(text, fields);
    if (n != columns->n)
        return kvpi_requests_fail(parser, "%zu field%s, expected %zu as in the header", n,
                                  n == 1 ? "" : "s", columns->n);
    if (read_timestamp(parser, format->names[0], fields[columns->timestamp],
                       &request.timestamp_us) != 0 ||
        read_length(parser, format->names[1], fields[columns->input], &request.input_length) != 0 ||
        read_length(parser, format->names[2], fields[columns->output], &request.output_length) != 0)
        return -1;
    return kvpi_requests_add(parser, &request);
}
