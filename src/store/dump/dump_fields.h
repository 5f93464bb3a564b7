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
