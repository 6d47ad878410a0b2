"""A naive adapter, to prove that rounds find what it does wrong."""

from weakref import WeakKeyDictionary

from safeconsumer.clients.member import Member


def plant_a_fault():
    """Let members look for what is held when holds change, and after no rebalance."""
    look, looked = Member.quiet, WeakKeyDictionary()

    def quiet(self):
        holds = self.holds()
        if self not in looked or looked[self][0] != holds:
            looked[self] = holds, look(self)
        return looked[self][1]

    Member.quiet = quiet
