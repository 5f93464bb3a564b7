/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Fields as text (key=value) or JSON ("key":value): one set of calls for two formats, so that neither can omit a field
 * of the other.
 */

#include "format/format.h"
#include <stdbool.h>
#include <stdio.h>

struct wb_fields {
    FILE *out;
    bool json;
    bool more; /* another field precedes on this level */
};

/* One line, which is one object. */
void wb_fields_begin(struct wb_fields *fields, FILE *out, bool json);
void wb_fields_end(struct wb_fields *fields);

/* key={...} and key=[{...} {...}]; the elements of a list have no key (NULL). */
void wb_fields_open(struct wb_fields *fields, const char *key, char bracket);
void wb_fields_close(struct wb_fields *fields, char bracket);

/* Text: the bare word, without its key. */
void wb_fields_word(struct wb_fields *fields, const char *key, const char *word);
void wb_fields_uint(struct wb_fields *fields, const char *key, uint64_t value);
void wb_fields_bool(struct wb_fields *fields, const char *key, bool value);

/* Octal in text. */
void wb_fields_mode(struct wb_fields *fields, const char *key, uint32_t mode);

/* Hexadecimal, as a string in JSON: not all JSON readers support numbers of 64 bits. */
void wb_fields_check(struct wb_fields *fields, const char *key, uint64_t check);

/* An instant: seconds in text, integer nanoseconds in JSON. */
void wb_fields_instant(struct wb_fields *fields, const char *key, int64_t when);

/* Bytes of users, quoted. In text, bytes that are not UTF-8 are \xNN; in JSON they are U+FFFD, and "key_bytes" has all
 * bytes in hexadecimal. */
void wb_fields_bytes(struct wb_fields *fields, const char *key, const char *bytes, size_t length);

/* An id; omitted if there is none. */
void wb_fields_object(struct wb_fields *fields, const char *key, struct wb_object object);
void wb_fields_attrs(struct wb_fields *fields, const char *key, const struct wb_attrs *attrs);
