/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/*
 * Object ids as text and as file names in the store. Each id has exactly one spelling, so a name that was parsed is
 * printed as the same name.
 */

#define HEX_DIGITS 16
#define ID_LENGTH (HEX_DIGITS + 1 + HEX_DIGITS)

_Static_assert(ID_LENGTH + 1 == WB_OBJECT_TEXT_MAX, "an id and its NUL fill the text");
_Static_assert(sizeof(WB_OBJECTS_NAME "/xx/") + ID_LENGTH + sizeof(".bundle-old") <= WB_OBJECT_PATH_MAX,
               "the longest path of an object's file fits");

static const char *const suffixes[] = {
    [WB_FILE_UNDO] = ".undo", [WB_FILE_CATALOG] = ".cat", [WB_FILE_IMAGE] = ".image",
    [WB_FILE_DATA] = ".data", [WB_FILE_DIR] = ".dir", [WB_FILE_BUNDLE] = ".bundle",
    [WB_FILE_BUNDLE_OLD] = ".bundle-old", [WB_FILE_GONE] = ".gone",
};

void wb_object_print(struct wb_object object, char text[WB_OBJECT_TEXT_MAX])
{
    snprintf(text, WB_OBJECT_TEXT_MAX, "%016" PRIx64 "-%016" PRIx64, object.ino,
             (uint64_t)object.birth);
}

static bool parse_hex(const char *text, uint64_t *ret)
{
    uint64_t value = 0;

    for (int i = 0; i < HEX_DIGITS; i++) {
        char c = text[i];

        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else
            return false;
    }
    *ret = value;
    return true;
}

/* Parses the id at the beginning of `text`; more text may follow. */
static int parse_prefix(const char *text, struct wb_object *ret)
{
    uint64_t ino, birth;

    if (!parse_hex(text, &ino) || text[HEX_DIGITS] != '-' || !parse_hex(text + HEX_DIGITS + 1, &birth))
        return -EINVAL;
    *ret = (struct wb_object){.ino = ino, .birth = (int64_t)birth};
    return 0;
}

int wb_object_parse(const char *text, struct wb_object *ret)
{
    struct wb_object object;

    if (parse_prefix(text, &object) < 0 || text[ID_LENGTH] != '\0')
        return -EINVAL;
    *ret = object;
    return 0;
}

void wb_object_path(struct wb_object object, enum wb_object_file file, char path[WB_OBJECT_PATH_MAX])
{
    char text[WB_OBJECT_TEXT_MAX];

    wb_object_print(object, text);
    snprintf(path, WB_OBJECT_PATH_MAX, WB_OBJECTS_NAME "/%02x/%s%s", (unsigned)(object.ino & 0xff), text,
             suffixes[file]);
}

int wb_object_file_parse(const char *name, struct wb_object *ret, enum wb_object_file *file)
{
    struct wb_object object;

    if (parse_prefix(name, &object) < 0)
        return -EINVAL;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        if (strcmp(name + ID_LENGTH, suffixes[i]) == 0) {
            *ret = object;
            *file = (enum wb_object_file)i;
            return 0;
        }
    }
    return -EINVAL;
}
