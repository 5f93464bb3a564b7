/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* wayback.conf: any text, and lines of words that occur in it. A mistake is at the reported place. */
#include "policy/config.h"
#include "fuzz.h"
#include <glib.h>

static void complain(const struct wb_config_mistake *mistake, void *data)
{
    unsigned *count = data;

    g_assert_cmpuint(mistake->line, >, 0);
    g_assert_nonnull(mistake->text);
    (*count)++;
}

static void parse(const char *text, size_t length)
{
    struct wb_config config;
    unsigned mistakes = 0;
    int r = wb_config_parse(&config, text, length, complain, &mistakes);

    g_assert_true((r == 0) == (mistakes == 0));
    if (r == 0)
        wb_policy_find(&config.policy, "a/b/[c].o", length & 1);
    wb_config_deinit(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const words[] = {"[snapshots]", "[history]", "hourly", "every", "at", "compact", "compact-after", "=", ":",
                                        "24", "10m", "10m:36", "00:00", "25:00", "none", "zstd", "-1", "4294967296", "\n", " ",
                                        "#", "99999999999y", "\xff", "5m", "monthly", "[", "]", "\t",
                                        "[path \"*.o\"]\n", "[path \"", "\"", "**", "/", "!", "\\", "[!a-", "keep", "thin",
                                        "keep-versions", "max-size", "reserve", "1h:2d ", "1d:1y", "..", "5..9", "forever", "20%",
                                        "7G", "= 3d\n"};
    g_autoptr(GString) text = g_string_new(NULL);

    parse((const char *)data, size);
    for (size_t i = 0; i < size; i++)
        g_string_append(text, words[data[i] % G_N_ELEMENTS(words)]);
    parse(text->str, text->len);
    return 0;
}
