/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuzz_reply.h"

#include "client/control.h"
#include "vstat/vstat.h"
#include <glib.h>

#define VERSIONS_MAX 200

void fuzz_ask_versions(int fd, bool directory)
{
    _cleanup_walk_ struct wb_version_walk *walk = wb_version_walk_new(fd, "a", 0, 0, 0);
    struct show show = {.directory = directory, .name = "a", .verbose = directory};
    g_autoptr(JsonBuilder) builder = json_builder_new();
    const struct wb_control_version *version;
    struct row row;
    FILE *nowhere = fopen("/dev/null", "w");
    struct wb_table *table = show_table(nowhere, &show);

    for (unsigned n = 0; n < VERSIONS_MAX && wb_version_walk_next(walk, &version) == 0; n++) {
        if (*version->name)
            fuzz_expect_name(version->name);
        if (*version->other)
            fuzz_expect_name(version->other);
        row = (struct row){.is = *version, .lines = "-"};
        show_row(table, &show, &row);
        show_json(builder, &show, &row);
        json_builder_reset(builder);
    }
    wb_table_free(table);
    fclose(nowhere);
}
