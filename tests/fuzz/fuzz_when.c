/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Times, durations and sizes as people write them: each time that is parsed is printed, and the output is parsed as the same time. */
#include "fuzz.h"
#include "wayback/when.h"
#include "format/format.h"
#include "time/quantity.h"
#include <glib.h>

#define NOW INT64_C(1767225600123456789)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    g_autofree char *text = g_strndup((const char *)data, size);
    char printed[WB_WHEN_TEXT_MAX];
    struct wb_time time, again;
    struct wb_object object;
    enum wb_object_file file;
    uint64_t bytes;
    int64_t span;

    if (wb_time_parse(text, NOW, &time) == 0 && time.kind == WB_TIME_INSTANT) {
        wb_when_print(time.instant, 1, printed);
        wb_when_print_epoch(time.instant, printed);
        if (time.instant >= 0)
            g_assert_true(wb_time_parse(printed, NOW, &again) == 0 && again.instant == time.instant);
    }
    wb_time_parse_words(text, NOW, &time);
    if (wb_time_parse_name(text, NOW, &time) == 0 && time.kind == WB_TIME_INSTANT)
        g_assert_true(wb_time_parse_words(text, NOW, &again) == 0 || wb_time_parse_free(text, NOW, &again) == 0);
    if (wb_span_parse(text, &span) == 0)
        g_assert_true(span >= 0);
    if (wb_size_parse(text, &bytes) == 0)
        g_assert_true(bytes > 0 && bytes <= INT64_MAX);
    if (wb_time_parse_free(text, NOW, &time) == 0)
        g_assert_true(time.kind == WB_TIME_INSTANT && time.instant >= 0);
    if (wb_object_parse(text, &object) == 0) {
        char back[WB_OBJECT_TEXT_MAX];

        wb_object_print(object, back);
        g_assert_cmpstr(back, ==, text);
    }
    wb_object_file_parse(text, &object, &file);
    return 0;
}
