#!/bin/sh
# Makes the files of this directory again: needs db5.3-util, tinycdb, and makemap and newaliases of sendmail in PATH.
# makemap and newaliases want to run as a user that may write here; newaliases wants a sendmail.cf with `O AliasFile=aliases`.
set -e
makemap hash makemap-hash <entries
makemap btree makemap-btree <entries
newaliases
# What db5.3_load and cdb read: keys in lower case.
pairs() { awk '/^[^#]/ { key = $1; sub(/^[^ \t]+[ \t]+/, ""); print tolower(key); print }' entries; }
doubles() { pairs; pairs | awk 'NR % 2 { print; next } { print "second " $0 }' | head -40; for i in $(seq 200); do echo many; echo "value $i of many"; done; }
load() { file=$1; shift; rm -f "$file"; pairs | db5.3_load -T -c db_pagesize=512 "$@" "$file"; }
load little-hash.db -t hash -c db_lorder=1234
load big-hash.db -t hash -c db_lorder=4321
load little-btree.db -t btree -c db_lorder=1234
load big-btree.db -t btree -c db_lorder=4321
load checksum-hash.db -t hash -c chksum=1
load checksum-btree.db -t btree -c chksum=1 -c db_lorder=4321
load several.db -t hash -c database=one
load encrypted.db -t hash -P secret
for type in hash btree; do
    rm -f duplicates-$type.db
    doubles | db5.3_load -T -c db_pagesize=512 -c duplicates=1 -t $type duplicates-$type.db
done
rm -f queue.db
for i in 1 2; do echo "$i"; done | db5.3_load -T -t queue -c re_len=8 queue.db
pairs | awk 'NR % 2 { key = $0; next } { printf "+%d,%d:%s->%s\n", length(key), length($0), key, $0 } END { print "" }' | cdb -c tinycdb.cdb
