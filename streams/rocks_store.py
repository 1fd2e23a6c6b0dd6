"""The local state of lanes in RocksDB, with one memory budget for the whole worker."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

import orjson
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
)

from streams.ports import LaneLostError, StateChange, StoreBrokenError, StoreStamp

_STAMP = b"\0stamp"
_MIB = 1024 * 1024
_BLOOM_BITS = 10
_METADATA_BLOCK_BYTES = 4096
_MEMTABLE_BLOOM_SHARE = 0.05
_OPEN_FILES = 128
_KEY = itemgetter(0)


class RocksStore:
    """One lane's state in one RocksDB. See `streams.ports.StateStore`."""

    def __init__(self, path: Path, options: Options) -> None:
        self._db = Rdict(str(path), options)
        self._get = self._db.get

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        try:
            return self._get(key)  # type: ignore[no-any-return]
        except Exception as error:
            # A disk that fails must cost the store, never the command that happened to read.
            raise StoreBrokenError(f"the local store cannot be read: {error}") from error

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All pairs whose key begins with `prefix`, in key order, from key `start` on."""
        options = ReadOptions()
        upper = _after_prefix(prefix)
        if upper is not None:
            options.set_iterate_upper_bound(upper)
        cursor = self._db.iter(options)
        cursor.seek(max(prefix, start) if start is not None else prefix)
        while cursor.valid():
            yield cursor.key(), cursor.value()
            cursor.next()
        try:
            cursor.status()
        except Exception as error:
            raise StoreBrokenError(f"the local store cannot be read: {error}") from error

    def stamp(self) -> StoreStamp | None:
        """What the store stands for; None when it is new."""
        data = self.get(_STAMP)
        return StoreStamp(*orjson.loads(data)) if data else None

    def write(self, changes: Iterable[StateChange], stamp: StoreStamp) -> None:
        """Apply changes and the new stamp, all or nothing."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        # In key order a write costs less. The sort is stable: of changes to one key the last still counts.
        for key, value in sorted(changes, key=_KEY):
            if value is None:
                delete(key)
            else:
                put(key, value)
        put(_STAMP, orjson.dumps((stamp.changelog_id, stamp.position, stamp.written_at)))
        try:
            self._db.write(batch)
        except Exception as error:
            raise StoreBrokenError(f"the local store cannot be written: {error}") from error

    def close(self) -> None:
        """Release the store; it keeps what was written."""
        self._db.close()


class RocksStores:
    """Opens the lanes' stores below one folder; block cache and write buffers are shared and bounded."""

    def __init__(self, folder: Path, *, block_cache_mb: int, write_buffer_mb: int, lanes: int) -> None:
        """`lanes` is the most lanes that this worker may own: the write-buffer budget is cut among them."""
        self._folder = folder
        self._cache = Cache(block_cache_mb * _MIB)
        self._buffers = WriteBufferManager(write_buffer_mb * _MIB, False)
        self._lane_buffer = max(1, write_buffer_mb // max(1, lanes) // 2) * _MIB

    def open(self, partition: int) -> RocksStore:
        """The lane's store, made when it is not there. Raises `StoreBrokenError`."""
        path = self._path(partition)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return RocksStore(path, self._options())
        except Exception as error:
            if "/LOCK" in str(error):
                # In use, not broken: whoever holds it is about to let go.
                raise LaneLostError(f"the local store is in use: {error}") from error
            raise StoreBrokenError(f"the local store cannot be opened: {error}") from error

    def destroy(self, partition: int) -> None:
        """Throw the lane's store away; it must be closed."""
        shutil.rmtree(self._path(partition), ignore_errors=True)

    def _path(self, partition: int) -> Path:
        return self._folder / f"lane-{partition}"

    def _options(self) -> Options:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(_BLOOM_BITS, False)
        # Index and filter blocks count against the cache, so that memory stays bounded as state grows. They are cut
        # into parts: whole ones are megabytes, which are read again for nearly every key once they do not fit.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_metadata_block_size(_METADATA_BLOCK_BYTES)
        blocks.set_pin_top_level_index_and_filter(True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(self._lane_buffer)
        # Every new command id is looked up and not found: a filter tells without searching.
        options.set_memtable_prefix_bloom_ratio(_MEMTABLE_BLOOM_SHARE)
        options.set_memtable_whole_key_filtering(True)
        options.set_max_open_files(_OPEN_FILES)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_keep_log_file_num(2)
        return options


def _after_prefix(prefix: bytes) -> bytes | None:
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
