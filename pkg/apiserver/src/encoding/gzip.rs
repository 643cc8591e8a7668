//! Pieces, compressed.

use super::PIECE;
use super::work::Pieces;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use std::io::{Result, Write};

/// Pieces, compressed at the speed that suits a server.
pub struct Gzip<P> {
    pieces: P,
    /// None when all is said.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<P: Pieces> Gzip<P> {
    /// Of these pieces.
    pub fn new(pieces: P) -> Gzip<P> {
        Gzip { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }

    fn fill(&mut self) -> Result<Vec<u8>> {
        let mut read = 0;
        while let Some(encoder) = &mut self.encoder {
            if encoder.get_ref().len() >= PIECE || read >= 4 * PIECE && !encoder.get_ref().is_empty() {
                return Ok(std::mem::take(encoder.get_mut()));
            }
            match self.pieces.next_piece() {
                Some(piece) => {
                    let piece = piece?;
                    read += piece.len();
                    encoder.write_all(&piece)?;
                }
                None => return self.encoder.take().map_or(Ok(Vec::new()), GzEncoder::finish),
            }
        }
        Ok(Vec::new())
    }
}

impl<P: Pieces> Pieces for Gzip<P> {
    fn cost(&self) -> usize {
        self.pieces.cost() + PIECE
    }

    fn next_piece(&mut self) -> Option<Result<Bytes>> {
        match self.fill() {
            Ok(piece) if piece.is_empty() => None,
            Ok(piece) => Some(Ok(piece.into())),
            Err(error) => Some(Err(error)),
        }
    }
}

impl Pieces for Box<dyn Pieces> {
    fn cost(&self) -> usize {
        (**self).cost()
    }

    fn next_piece(&mut self) -> Option<Result<Bytes>> {
        (**self).next_piece()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    struct Many(usize);

    impl Pieces for Many {
        fn cost(&self) -> usize {
            1000
        }

        fn next_piece(&mut self) -> Option<Result<Bytes>> {
            self.0 = self.0.checked_sub(1)?;
            let random: Vec<u8> = (0..16).flat_map(|_| uuid::Uuid::new_v4().into_bytes()).collect();
            Some(Ok([format!("{:>744}", self.0).into_bytes(), random].concat().into()))
        }
    }

    #[test]
    fn what_is_compressed_in_pieces_is_whole() {
        let mut pieces = Gzip::new(Many(5000));
        let compressed: Vec<Bytes> = std::iter::from_fn(|| pieces.next_piece()).map(Result::unwrap).collect();
        assert!(compressed.len() > 5, "{}", compressed.len());
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(&*compressed.concat()).read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), 5_000_000);
        assert!(String::from_utf8_lossy(&read[..744]).ends_with("4999"));
    }
}
